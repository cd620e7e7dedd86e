"""`attend` of every kernel set against float64 over the same keys.

Tolerances are norms of the difference over the norm of the result. bf16 weights and outputs round to 2^-9 (2e-3 each);
e4m3 keys are exact in the float16 that Triton multiplies them in, or are multiplied as they are and summed in float32 every
64 products (5e-4); `fp8_656` values are rounded to bf16 (4e-3).
"""

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from dsa_contracts.core.marks import BF16, F32
from tests.support.kernel_cases import DEVICES, GPU, ON_GPU, AttendCase, attend_case, flash_mla_stages, poison, triton_stages

TOLERANCE = {"bf16": 2e-3, "fp8": 5e-4, "fp8_656": 4e-3}
SCALES = {"bf16": (0.0722, 1.0, 1.0), "fp8": (0.0722, 0.5, 0.25), "fp8_656": (0.0722, 1.0, 1.0)}


def q_dtype(row_format: str) -> torch.dtype:
    """Return the dtype that queries have beside a pool of a format."""
    return torch.float8_e4m3fn if row_format == "fp8" else torch.bfloat16


def check(stage: Callable[..., Any], case: AttendCase, row_format: str, tolerance: float, dtype: Any = F32) -> None:
    """Compare one call with float64, and rows without keys with the contract."""
    scales = SCALES[row_format]
    want, want_lse = case.oracle(*scales)
    poison(case.q.device.type, want.numel() * 4)
    tables = (case.topk, case.causal_lens, case.request_of_row, case.page_table)
    out, lse = stage(case.q, case.pool, *tables, *scales, dtype, case.row_format, case.batch)
    empty = want_lse.isneginf()
    assert out.dtype == dtype.torch_dtype
    assert bool((out[empty] == 0).all())
    assert bool(lse[empty].isneginf().all())
    assert bool(out.isfinite().all())
    error = float((out.double() - want).norm() / want.norm().clamp(min=1e-30))
    sys.stdout.write(f"{row_format} {tuple(case.q.shape)} {dtype.__name__}: relative error {error:.2e}" + "\n")
    assert error < tolerance
    lse_error = (lse.double() - want_lse)[~empty].abs()
    assert float(lse_error.max() if lse_error.numel() else 0.0) < 5e-2


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("row_format", ["bf16", "fp8", "fp8_656"])
@pytest.mark.parametrize(
    ("rows", "heads", "topk"), [(37, 16, 128), (7, 128, 100), (127, 64, 192), (5, 40, 16), (5, 16, 16), (6, 2, 192)]
)
def test_triton_agrees_with_float64(rows: int, heads: int, topk: int, row_format: str, device: str) -> None:
    case = attend_case(row_format, rows, heads, topk, device, q_dtype(row_format))
    check(triton_stages.attend, case, row_format, TOLERANCE[row_format])


@pytest.mark.parametrize("device", DEVICES)
def test_triton_writes_bf16_where_asked(device: str) -> None:
    case = attend_case("fp8", 9, 16, 128, device, torch.float8_e4m3fn)
    check(triton_stages.attend, case, "fp8", 3e-3, BF16)


@pytest.mark.parametrize("device", [ON_GPU])
def test_triton_agrees_on_many_rows(device: str) -> None:
    case = attend_case("fp8", 4097, 64, 192, device, torch.float8_e4m3fn)
    check(triton_stages.attend, case, "fp8", TOLERANCE["fp8"])


@pytest.mark.parametrize("device", DEVICES)
def test_a_key_that_is_nan_shows_in_rows_that_attend_to_it_alone(device: str) -> None:
    case = attend_case("bf16", 9, 16, 128, device, torch.bfloat16)
    case.causal_lens[:], case.topk[:] = 100, 5
    case.topk[6, 3] = 50
    request = int(case.request_of_row[6])
    case.pool[int(case.page_table[request, 0]), 50] = 0xFF
    tables = (case.topk[:, 3:4].contiguous(), case.causal_lens, case.request_of_row, case.page_table)
    out, lse = triton_stages.attend(case.q, case.pool, *tables, 0.1, 1.0, 1.0, F32, case.row_format, case.batch)
    assert out.isnan().flatten(1).any(dim=1).nonzero().flatten().tolist() == [6]
    assert lse.isnan().any(dim=1).nonzero().flatten().tolist() == [6]


@pytest.mark.gpu
@GPU
@pytest.mark.parametrize("row_format", ["bf16", "fp8", "fp8_656"])
@pytest.mark.parametrize(("rows", "heads", "topk"), [(1, 64, 128), (37, 128, 100), (127, 64, 192), (4097, 64, 192)])
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_flash_mla_agrees_with_float64(rows: int, heads: int, topk: int, row_format: str, dtype: Any) -> None:
    pytest.importorskip("flash_mla")
    case = attend_case(row_format, rows, heads, topk, "cuda", q_dtype(row_format))
    check(flash_mla_stages.attend, case, row_format, 5e-3, dtype)


@pytest.mark.gpu
@GPU
def test_pages_are_converted_once_where_rows_gather_more_keys_than_there_are() -> None:
    from dsa_cp.triton_jit.attend import pays_to_convert

    q, codes = torch.empty(64, 16, 576, dtype=torch.bfloat16), torch.empty(64, 16, 576, dtype=torch.uint8)
    flat, grouped = torch.empty(1, 64, 576, dtype=torch.uint8), torch.empty(1, 64, 656, dtype=torch.uint8)
    wide = torch.empty(1, 64, 1152, dtype=torch.uint8)
    assert pays_to_convert(q, grouped, 2048, 1024, 128, 512)
    assert not pays_to_convert(q, grouped, 2048, 1025, 128, 512)
    assert pays_to_convert(q[:1], grouped, 16, 1024, 128, 128)
    assert pays_to_convert(codes, flat, 2048, 1024, 0, 512)
    assert not pays_to_convert(q, wide, 2048, 8, 0, 512)
    assert not pays_to_convert(codes.repeat(1, 4, 1), flat, 2048, 8, 0, 512)
