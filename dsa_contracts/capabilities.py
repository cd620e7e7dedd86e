"""What an attention backend can do, as data. The planner decides from these facts and never from a backend's name."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Capability:
    """One attention backend.

    Attributes:
        name: written name.
        row_formats: KV row formats that it reads.
        ropes_inside: row formats for which it rotates q and K itself, fused with quantisation.
        source: file and version that the facts were read from.
    """

    name: str
    row_formats: frozenset[str]
    ropes_inside: frozenset[str]
    source: str


CAPABILITIES: dict[str, Capability] = {
    capability.name: capability
    for capability in (
        Capability(
            "trtllm",
            row_formats=frozenset({"bf16", "fp8"}),
            ropes_inside=frozenset({"fp8"}),
            source="sglang 0.5.15 layers/attention/dsa_backend.py `_fuse_rope_for_trtllm_mla`, `_forward_trtllm`",
        ),
        Capability(
            "flashmla_sparse",
            row_formats=frozenset({"bf16"}),
            ropes_inside=frozenset(),
            source="FlashMLA 1.0.0 `flash_mla_sparse_fwd`",
        ),
        Capability(
            "torch_reference",
            row_formats=frozenset({"bf16", "fp8", "fp8_656"}),
            ropes_inside=frozenset({"fp8"}),
            source="dsa_cp.stages",
        ),
    )
}
