"""Triton's `quantize_rows` and `pack_index_key`: bytes equal to the reference on a CPU.

On a GPU torch divides by a Python number through its reciprocal, which moves one scale in some by a step; the kernel divides.
Infinite values are left out: the sign of the NaN that comes of inf / inf differs between processors.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts.dsa.row_formats import fp8_656_format, index_bf16_format, index_fp8_format
from tests.support.kernel_cases import DEVICES, batch_of, bytes_differ, normal, poison, references, triton_stages


def latent(rows: int, device: str) -> Tensor:
    """Return rows of very different magnitude; a zero row, a tiny one and a NaN among them."""
    values = normal(device, rows, 592) * (torch.rand(rows, 1, device=device) * 100).bfloat16()
    if rows > 4:
        values[1], values[2], values[3, 130] = 0, 1e-39, float("nan")
    return values


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rows", [0, 1, 7, 127, 4097])
def test_rows_equal_the_reference(rows: int, device: str) -> None:
    batch: Any = batch_of(rows, device)
    values, row_format = latent(rows, device), fp8_656_format()
    cpu: Any = batch_of(rows, "cpu")
    want = references.quantize_rows(values[:, :512].cpu(), values[:, 528:].cpu(), row_format, cpu)
    poison(device, rows * 656)
    got = triton_stages.quantize_rows(values[:, :512], values[:, 528:], row_format, batch)
    assert bytes_differ(got, want) == 0


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rows", [0, 1, 7, 127, 4097])
def test_index_keys_equal_the_reference(rows: int, device: str) -> None:
    batch: Any = batch_of(rows, device)
    values = latent(rows, device)[:, 7:135]
    cpu: Any = batch_of(rows, "cpu")
    for row_format in (index_fp8_format(), index_bf16_format()):
        want = references.pack_index_key(values.cpu(), row_format, cpu)
        poison(device, rows * 132)
        assert bytes_differ(triton_stages.pack_index_key(values, row_format, batch), want) == 0
