"""Dims of the models that the path runs for, and what of them a batch binds."""

from dataclasses import dataclass

from dsa_contracts import CpBatch, RopeStyle
from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.dsa.typevars import L


@dataclass(frozen=True)
class ModelDims:
    """The dims of one DSA model, as far as the attention path behind the projections sees them.

    Attributes:
        name: written name.
        num_heads: query heads; all on one rank, since context parallelism does not divide heads.
        kv_lora_rank: width of the KV latent.
        qk_rope_head_dim: width of the rotated part.
        qk_nope_head_dim: width of a head before absorption; with the rotated part it sets the softmax scale.
        index_topk: keys that a row attends to, at most.
        num_index_heads: heads of the lightning indexer.
        index_head_dim: width of an indexer head; its first `qk_rope_head_dim` elements are rotated.
        rope_theta: base of the rotation.
        rope_style: pairing in the main attention.
        index_rope_style: pairing in the indexer.
    """

    name: str
    num_heads: int
    kv_lora_rank: int = 512
    qk_rope_head_dim: int = 64
    qk_nope_head_dim: int = 128
    index_topk: int = 2048
    num_index_heads: int = 64
    index_head_dim: int = 128
    rope_theta: float = 10000.0
    rope_style: RopeStyle = RopeStyle.INTERLEAVED
    index_rope_style: RopeStyle = RopeStyle.NEOX

    @property
    def softmax_scale(self) -> float:
        """1 / sqrt(head dim before absorption)."""
        return float((self.qk_nope_head_dim + self.qk_rope_head_dim) ** -0.5)

    def bind(self, batch: CpBatch[L]) -> None:
        """Bind the model's dims for all stages of a batch, in this model's name."""
        dims = {
            "num_local_heads": self.num_heads,
            "kv_lora_rank": self.kv_lora_rank,
            "qk_rope_head_dim": self.qk_rope_head_dim,
            "qk_head_dim": self.kv_lora_rank + self.qk_rope_head_dim,
            "num_index_heads": self.num_index_heads,
            "index_head_dim": self.index_head_dim,
        }
        for name, value in dims.items():
            batch.dims.bind(name, value, f"model {self.name}")


MODELS: dict[str, ModelDims] = {
    model.name: model
    for model in (
        ModelDims("default", num_heads=2, num_index_heads=2),
        ModelDims("deepseek-v3.2", num_heads=128),
        ModelDims(
            "glm-5",
            num_heads=64,
            qk_nope_head_dim=192,
            num_index_heads=32,
            rope_theta=1e6,
            index_rope_style=RopeStyle.INTERLEAVED,
        ),
        ModelDims(
            "tiny",
            num_heads=2,
            kv_lora_rank=128,
            qk_rope_head_dim=16,
            qk_nope_head_dim=32,
            index_topk=16,
            num_index_heads=2,
            index_head_dim=32,
        ),
    )
}
"""`default` keeps DeepSeek-V3.2's row widths and top-k and cuts heads, so that two CPU cores finish; `tiny` is for tests."""


def model_by_name(name: str) -> ModelDims:
    """Return a model's dims; raises ArgumentError DSA602 naming the models there are."""
    if name not in MODELS:
        raise ArgumentError(f"model {name!r} is not known; known are {', '.join(MODELS)}")
    return MODELS[name]
