"""Triton's `write_kv`: every byte of the pool compared, whatever width and stride rows have."""

from typing import Any

import pytest
import torch

from dsa_contracts.dsa.row_formats import (
    RowFormat,
    bf16_format,
    fp8_656_format,
    fp8_format,
    index_bf16_format,
    index_fp8_format,
)
from tests.support.kernel_cases import DEVICES, batch_of, triton_stages

FORMATS: list[tuple[RowFormat[Any, Any, Any], int, int]] = [
    (fp8_format(), 576, 0),
    (bf16_format(), 1152, 0),
    (fp8_656_format(), 656, 0),
    (index_fp8_format(), 132, 0),
    (index_bf16_format(), 256, 0),
    (fp8_format(), 708, 0),
    (index_fp8_format(), 708, 576),
    (fp8_656_format(), 788, 0),
    (fp8_format(128, 16), 147, 2),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("row_format", "stride", "offset"), FORMATS, ids=lambda x: getattr(x, "name", str(x)))
@pytest.mark.parametrize("rows", [0, 1, 7, 127, 4097])
def test_rows_stand_in_their_slots_and_nothing_else_changes(
    rows: int, row_format: RowFormat[Any, Any, Any], stride: int, offset: int, device: str
) -> None:
    batch = batch_of(max(rows, 1), device)
    width, slots = row_format.row_bytes, 8192
    pool = torch.randint(0, 256, (slots // 64, 64, width), dtype=torch.uint8, device=device)
    kv = torch.randint(0, 256, (rows, stride), dtype=torch.uint8, device=device)[:, offset : offset + width]
    loc = torch.randperm(slots, device=device)[:rows]
    loc[torch.rand(rows, device=device) < 0.2] = -1
    want = pool.clone().view(slots, width)
    want[loc[loc >= 0]] = kv[loc >= 0]
    if rows:
        triton_stages.write_kv(pool, kv, loc, row_format, batch)
    assert torch.equal(pool.view(slots, width), want)
