"""bf16 rows into e4m3 rows with one float32 scale a group: `fp8_656` rows and indexer keys."""

# ruff: noqa: N803 - compile-time constants of a kernel are upper case, as Triton's own are

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _quantize_groups(values):
    """Return codes [ROWS, GROUPS, SIZE] and scales [ROWS, GROUPS] of float32 values; a group with a NaN is NaN whole."""
    wide = values.to(tl.float32)
    largest = tl.max(tl.abs(wide), axis=2)
    has_nan = tl.max((wide != wide).to(tl.int32), axis=2) > 0
    scales = tl.maximum(tl.math.div_rn(largest, 448.0), 1.1754943508222875e-38)
    scales = tl.where(has_nan, float("nan"), scales)
    return tl.math.div_rn(wide, tl.broadcast_to(scales[:, :, None], wide.shape)).to(tl.float8e4nv), scales


@triton.jit(do_not_specialize=["rows"])
def quantize_rows_kernel(
    nope, rope, codes, scales, kept, nope_row, rope_row, rows,
    GROUPS: tl.constexpr, SIZE: tl.constexpr, ROPE: tl.constexpr, ROW_BYTES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """`BLOCK` rows a program. `codes`, `scales` and `kept` are one buffer, seen as e4m3, float32 and bf16.

    A row is `GROUPS * SIZE` codes, `GROUPS` scales and, where `ROPE` is not 0, `ROPE` bf16 values as they come.
    """
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = row < rows
    group, element = tl.arange(0, GROUPS), tl.arange(0, SIZE)
    column = group[None, :, None] * SIZE + element[None, None, :]
    values = tl.load(nope + row[:, None, None] * nope_row + column, mask=inside[:, None, None])
    quantized, factor = _quantize_groups(values)
    tl.store(codes + row[:, None, None] * ROW_BYTES + column, quantized, mask=inside[:, None, None])
    at = row[:, None] * (ROW_BYTES // 4) + GROUPS * SIZE // 4 + group[None, :]
    tl.store(scales + at, factor, mask=inside[:, None])
    if ROPE > 0:
        pair = tl.arange(0, ROPE)
        rotated = tl.load(rope + row[:, None] * rope_row + pair[None, :], mask=inside[:, None])
        at = row[:, None] * (ROW_BYTES // 2) + GROUPS * (SIZE + 4) // 2 + pair[None, :]
        tl.store(kept + at, rotated, mask=inside[:, None])


def quantize_groups(x: Tensor, kept: Tensor | None, group: int) -> Tensor:
    """Launch; returns uint8 [n, d + 4 * groups + 2 * kept width].

    Args:
        x: bf16 [n, d], last stride 1.
        kept: bf16 [n, width], last stride 1; None where rows have no such part.
        group: elements under one scale.
    """
    rows, width = x.shape
    groups, kept_width = width // group, 0 if kept is None else kept.shape[1]
    row_bytes = width + 4 * groups + 2 * kept_width
    packed = torch.empty(rows, row_bytes, dtype=torch.uint8, device=x.device)
    if rows:
        last = x if kept is None else kept
        views = packed.view(torch.float8_e4m3fn), packed.view(torch.float32), packed.view(torch.bfloat16)
        block, warps = (4, 2) if groups > 1 else (8, 1)
        quantize_rows_kernel[(triton.cdiv(rows, block),)](
            x, last, *views, x.stride(0), last.stride(0), rows, groups, group, kept_width, row_bytes, block, num_warps=warps
        )
    return packed
