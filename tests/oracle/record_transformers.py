"""Record `data/*.json`: small random attention layers of transformers 5.24.0, in float64.

Run by hand, not by the tests; it needs `pip install torch==2.13.0 transformers==5.24.0` in a venv of its own:

    python tests/oracle/record_transformers.py tests/oracle/data

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
from unittest import mock

import torch
from torch import Tensor, nn

HEADS, RANK, ROPE, INDEX_HEADS, INDEX_DIM, TOPK, HIDDEN = 2, 16, 8, 6, 16, 8, 32
SEQ_LENS, PREFIX_LENS = (30, 5, 18), (13, 0, 6)
FAMILIES = {"deepseek_v32": "DeepseekV32", "glm_moe_dsa": "GlmMoeDsa"}
"""Modules of transformers and the prefix of their classes: the indexer rotates halves in one, pairs in the other."""


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


def build_model(modeling: Any, family: str) -> tuple[Any, Any]:
    config = getattr(modeling, f"{family}Config")(
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
    attention = getattr(modeling, f"{family}Attention")(config, 0).double().eval()
    for parameter in attention.parameters():
        nn.init.normal_(parameter, std=0.25)
    return attention, getattr(modeling, f"{family}RotaryEmbedding")(config)


def round_rotations(modeling: Any) -> None:
    """Both rotations give bf16 values, as our path stores them."""
    for name in ("apply_rotary_pos_emb", "apply_rotary_pos_emb_interleave"):
        original = getattr(modeling, name, None)

        def rotate(*args: Any, original: Any = original, **kwargs: Any) -> tuple[Tensor, ...]:
            return tuple(rounded(part) for part in original(*args, **kwargs))

        if original is not None:
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


class NearTieError(Exception):
    """The choice of keys would hang on the rounding of a score: take another seed."""


def check_ties(indexer_scores: Tensor) -> None:
    """Look at the distance between the last chosen score of each row and the next one."""
    for row, scores in enumerate(indexer_scores[TOPK:], start=TOPK):
        ordered = scores[: row + 1].sort(descending=True).values
        if float(ordered[TOPK - 1] - ordered[TOPK]) < 1e-5:
            raise NearTieError


def record_request(attention: Any, rotary: Any, tape: Tape, length: int, prefix: int) -> dict[str, Any]:
    hidden = torch.randn(1, length, HIDDEN, dtype=torch.float64)
    cos, sin = rotary(hidden, torch.arange(length)[None])
    mask = torch.full((length, length), float("-inf"), dtype=torch.float64).triu(1)[None, None]
    scores: list[Tensor] = []
    topk = Tensor.topk

    def spying(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        scores.append(self)
        return topk(self, *args, **kwargs)

    with mock.patch.object(Tensor, "topk", spying):
        final, weights, *_ = attention(hidden, (cos, sin), mask)
    seen = tape.seen
    check_ties(scores[0][0])
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


def record_family(module: str, family: str, seed: int) -> dict[str, Any]:
    modeling = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
    torch.manual_seed(seed)
    attention, rotary = build_model(modeling, family)
    tape = attach_hooks(attention)
    lens = zip(SEQ_LENS, PREFIX_LENS, strict=True)
    requests = [record_request(attention, rotary, tape, length, prefix) for length, prefix in lens]
    cos, sin = rotary(torch.zeros(1), torch.arange(max(SEQ_LENS))[None])
    table = torch.cat([cos[0, :, : ROPE // 2], sin[0, :, : ROPE // 2]], dim=-1)
    dims = {"heads": HEADS, "rank": RANK, "rope": ROPE, "index_heads": INDEX_HEADS, "index_dim": INDEX_DIM, "topk": TOPK}
    version = importlib.import_module("transformers").__version__
    return {
        "source": f"transformers {version} {family}Attention, torch {torch.__version__}, seed {seed}",
        **dims,
        "softmax_scale": attention.scaling,
        "cos_sin": table.tolist(),
        "requests": requests,
    }


@torch.no_grad()
def main(folder: Path) -> None:
    for module, family in FAMILIES.items():
        round_rotations(importlib.import_module(f"transformers.models.{module}.modeling_{module}"))
        for seed in range(100):
            try:
                recorded = record_family(module, family, seed)
            except NearTieError:
                continue
            (folder / f"{module}.json").write_text(json.dumps(recorded, separators=(",", ":")) + "\n")
            break


if __name__ == "__main__":
    main(Path(sys.argv[1]))
