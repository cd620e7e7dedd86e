"""The error that the README shows is the one that the path gives."""

from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import RopeStyle, declare, declare_lasting
from dsa_contracts.core.errors import StageInputError
from dsa_contracts.core.marks import Plain
from dsa_contracts.dsa.aliases import CosSinCache
from dsa_contracts.dsa.row_formats import bf16_format
from dsa_contracts.dsa.states import Bf16Row, Global, Local, Packed, PackedRowStride, Raw, Sequence, Table
from dsa_contracts.dsa.typevars import L
from dsa_cp.layouts import Zigzag, build_batch
from dsa_cp.numerics.rotation import cos_sin_table
from dsa_cp.stages import rebuild_positions, rope_quantize, split_kv
from dsa_cp.tools.stage_table import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def rows(*shape: int) -> Tensor:
    """Rows of zeros in bf16."""
    return torch.zeros(*shape, dtype=torch.bfloat16)


def message() -> list[str]:
    """K of eight tokens is split on a rank that holds four of them, and is given to the fused RoPE."""
    batch = build_batch(Zigzag(), 2, 1, [8]).at_layer(0)
    packed: Any = declare(rows(8, 576).view(torch.uint8), Global[Sequence], Packed[Bf16Row, Raw], batch, "test")
    k_nope, k_rope = split_kv(packed, bf16_format(512, 64), PackedRowStride, batch)
    q_nope: Any = declare(rows(4, 2, 512), Local[L], Plain, batch, "test")  # type: ignore[valid-type]
    q_rope: Any = declare(rows(4, 2, 64), Local[L], Raw, batch, "test")  # type: ignore[valid-type]
    positions = rebuild_positions(batch.positions, batch.local_rows, batch)
    table: CosSinCache = declare_lasting(cos_sin_table(16, 64, 10_000.0), Table, Plain, "test")
    with pytest.raises(StageInputError) as error:
        rope_quantize(q_nope, q_rope, k_nope, k_rope, positions, table, RopeStyle.NEOX, 1.0, 1.0, batch)
    return str(error.value).splitlines()


def test_the_readme_shows_the_error_that_gathering_early_gives() -> None:
    shown = README.partition("StageInputError DSA102: ")
    lines = (shown[1] + shown[2]).partition("\n```")[0].splitlines()
    got = message()
    assert len(lines) == len(got)
    for line, real in zip(lines, got, strict=True):
        assert real.startswith(line.removesuffix("...")) if line.endswith("...") else real == line
