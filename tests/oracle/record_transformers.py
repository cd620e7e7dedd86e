"""Record `data/transformers.json`: a small random DeepseekV32Attention of transformers 5.24.0, in float64.

Run by hand, not by the tests; it needs `pip install torch==2.13.0 transformers==5.24.0` in a venv of its own:

    python tests/oracle/record_transformers.py tests/oracle/data/transformers.json

The model's own code computes everything that is recorded as an output: rotation, indexer, choice of keys, softmax, and the
product with the values. So that our bf16 inputs lose nothing, hooks round to bf16 what our path takes as bf16: the results
of the projections, and the results of the two rotations. The absorbed query is drawn, and the model is given the query
that has it: its nope heads are as wide as the latent, so that absorption can be inverted.
"""

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

HEADS, RANK, ROPE, INDEX_HEADS, INDEX_DIM, TOPK, HIDDEN = 2, 16, 8, 6, 16, 8, 32
SEQ_LENS, PREFIX_LENS = (40, 9, 29), (16, 0, 8)
SEED = 6


def rounded(x: Tensor) -> Tensor:
    return x.bfloat16().to(x.dtype)


def bits(x: Tensor) -> list[Any]:
    """bf16 values as the ints of their 16 bits, so that JSON keeps them."""
    assert torch.equal(rounded(x), x)
    return (x.bfloat16().view(torch.int16).int() & 0xFFFF).tolist()


class Tape:
    """What the hooks saw in one forward pass, by name."""

    def __init__(self) -> None:
        self.seen: dict[str, Tensor] = {}

    def rounding(self, name: str) -> Callable[..., Tensor]:
        def hook(_module: nn.Module, _args: Any, output: Tensor) -> Tensor:
            self.seen[name] = rounded(output)[0]
            return self.seen[name][None]

        return hook


def absorbable_query(tape: Tape, key_weights: Tensor) -> Callable[..., Tensor]:
    """A hook that replaces the nope part of the query by the one whose absorbed form is the drawn bf16 query."""

    def hook(_module: nn.Module, _args: Any, output: Tensor) -> Tensor:
        heads = rounded(output[0]).view(-1, HEADS, RANK + ROPE)
        tape.seen["q"] = heads
        nope = torch.linalg.solve(key_weights, heads[..., :RANK, None]).squeeze(-1)
        return torch.cat([nope, heads[..., RANK:]], dim=-1).flatten(1)[None]

    return hook


def build_model(modeling: Any) -> tuple[Any, Any]:
    config = modeling.DeepseekV32Config(
        hidden_size=HIDDEN,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        q_lora_rank=24,
        kv_lora_rank=RANK,
        qk_nope_head_dim=RANK,
        qk_rope_head_dim=ROPE,
        v_head_dim=12,
        index_topk=TOPK,
        index_head_dim=INDEX_DIM,
        index_n_heads=INDEX_HEADS,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        num_hidden_layers=1,
        mlp_layer_types=["dense"],
        max_position_embeddings=64,
    )
    config._attn_implementation = "eager"
    attention = modeling.DeepseekV32Attention(config, 0).double().eval()
    for parameter in attention.parameters():
        nn.init.normal_(parameter, std=0.25)
    return attention, modeling.DeepseekV32RotaryEmbedding(config)


def round_rotations(modeling: Any) -> None:
    """Both rotations give bf16 values, as our path stores them."""
    for name in ("apply_rotary_pos_emb", "apply_rotary_pos_emb_interleave"):
        original = getattr(modeling, name)

        def rotate(*args: Any, original: Any = original, **kwargs: Any) -> tuple[Tensor, ...]:
            return tuple(rounded(part) for part in original(*args, **kwargs))

        setattr(modeling, name, rotate)


def attach_hooks(attention: Any) -> Tape:
    tape = Tape()
    key_weights = attention.kv_b_proj.weight.view(HEADS, RANK + 12, RANK)[:, :RANK].transpose(1, 2)
    attention.q_b_proj.register_forward_hook(absorbable_query(tape, key_weights))
    for name, module in {
        "latent": attention.kv_a_proj_with_mqa,
        "k_nope": attention.kv_a_layernorm,
        "q_index": attention.indexer.wq_b,
        "k_index": attention.indexer.k_norm,
        "weights": attention.indexer.weights_proj,
    }.items():
        module.register_forward_hook(tape.rounding(name))
    attention.indexer.register_forward_hook(lambda _m, _a, output: tape.seen.update(topk=output[0]))
    return tape


def check_ties(scores_gap: float) -> None:
    """The choice of keys must not hang on the rounding of a score."""
    if scores_gap < 1e-4:
        raise SystemExit(f"two scores are {scores_gap} apart; take another seed")


def threshold_gap(record: dict[str, Tensor], indexer_scores: Tensor) -> float:
    """The smallest distance, over all rows, between the last chosen score and the next one."""
    gaps = [float("inf")]
    for row, scores in enumerate(indexer_scores):
        ordered = scores[: row + 1].sort(descending=True).values
        if row >= TOPK:
            gaps.append(float(ordered[TOPK - 1] - ordered[TOPK]))
    return min(gaps)


def record_request(attention: Any, rotary: Any, tape: Tape, length: int, prefix: int) -> dict[str, Any]:
    hidden = torch.randn(1, length, HIDDEN, dtype=torch.float64)
    cos, sin = rotary(hidden, torch.arange(length)[None])
    mask = torch.full((length, length), float("-inf"), dtype=torch.float64).triu(1)[None, None]
    scores: list[Tensor] = []
    topk = Tensor.topk

    def spying(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        scores.append(self)
        return topk(self, *args, **kwargs)

    Tensor.topk = spying  # type: ignore[method-assign]
    try:
        final, weights = attention(hidden, (cos, sin), mask)
    finally:
        Tensor.topk = topk  # type: ignore[method-assign]
    seen = tape.seen
    check_ties(threshold_gap(seen, scores[0][0]))
    out = torch.einsum("hqk,kr->qhr", weights[0], seen["k_nope"])
    values = attention.kv_b_proj.weight.view(HEADS, RANK + 12, RANK)[:, RANK:]
    again = attention.o_proj(torch.einsum("qhr,hvr->qhv", out, values).flatten(1))
    assert torch.allclose(again, final[0], atol=1e-12)
    chosen = [sorted(k for k in row.tolist() if k <= at) for at, row in enumerate(seen["topk"])]
    return {
        "seq_len": length,
        "prefix_len": prefix,
        "q": bits(seen["q"]),
        "k_nope": bits(seen["k_nope"]),
        "k_rope": bits(seen["latent"][:, RANK:]),
        "q_index": bits(seen["q_index"].view(length, INDEX_HEADS, INDEX_DIM)),
        "k_index": bits(seen["k_index"]),
        "head_weights": (seen["weights"] * (INDEX_HEADS * INDEX_DIM) ** -0.5).float().tolist(),
        "topk": chosen,
        "out": [[[float(f"{value:.9g}") for value in head] for head in row] for row in out.tolist()],
    }


@torch.no_grad()
def main(path: Path) -> None:
    modeling = importlib.import_module("transformers.models.deepseek_v32.modeling_deepseek_v32")
    torch.manual_seed(SEED)
    round_rotations(modeling)
    attention, rotary = build_model(modeling)
    tape = attach_hooks(attention)
    requests = [
        record_request(attention, rotary, tape, length, prefix)
        for length, prefix in zip(SEQ_LENS, PREFIX_LENS, strict=True)
    ]
    cos, sin = rotary(torch.zeros(1), torch.arange(max(SEQ_LENS))[None])
    table = torch.cat([cos[0, :, : ROPE // 2], sin[0, :, : ROPE // 2]], dim=-1)
    dims = {"heads": HEADS, "rank": RANK, "rope": ROPE, "index_heads": INDEX_HEADS, "index_dim": INDEX_DIM, "topk": TOPK}
    source = f"transformers {importlib.import_module('transformers').__version__} DeepseekV32Attention, torch {torch.__version__}"
    recorded = {"source": source, **dims, "softmax_scale": attention.scaling, "cos_sin": table.tolist(), "requests": requests}
    path.write_text(json.dumps(recorded, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
