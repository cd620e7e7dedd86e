"""The end of an attention whose kernel writes bf16 and has its own convention for rows that attend to nothing."""

# ruff: noqa: N803 - compile-time constants of a kernel are upper case, as Triton's own are

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def finish_attend_kernel(mean, lse, counts, out, scale, HEADS: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """`BLOCK` elements of one row a program; the row's first program also writes its lse where the row is empty."""
    row = tl.program_id(0).to(tl.int64)
    is_empty = tl.load(counts + row) == 0
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(mean + row * SIZE + at, mask=at < SIZE).to(tl.float32)
    values = tl.where(is_empty, 0.0, values * scale)
    tl.store(out + row * SIZE + at, values.to(out.dtype.element_ty), mask=at < SIZE)
    if is_empty & (tl.program_id(1) == 0):
        head = tl.arange(0, HEADS)
        tl.store(lse + row * HEADS + head, tl.full([HEADS], float("-inf"), tl.float32))


def finish_attend(mean: Tensor, lse: Tensor, counts: Tensor, scale: float, out_dtype: torch.dtype) -> Tensor:
    """Launch; returns out = mean * scale, 0 for empty rows, and sets `lse` to -inf for them in place.

    Args:
        mean: bf16 [n, heads, rank], dense; written in place where `out_dtype` is bf16.
        lse: float32 [n, heads], dense; heads a power of two.
        counts: int32 [n]; 0 for an empty row.
        scale: value of a code.
        out_dtype: dtype of the result.
    """
    rows, heads, rank = mean.shape
    out = mean if out_dtype == mean.dtype else torch.empty(mean.shape, dtype=out_dtype, device=mean.device)
    if rows:
        block = 4096
        finish_attend_kernel[(rows, triton.cdiv(heads * rank, block))](
            mean, lse, counts, out, scale, heads, heads * rank, block, num_warps=4
        )
    return out
