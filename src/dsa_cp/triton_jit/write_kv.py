"""Packed rows into cache slots, any row width and stride, the rows in any order."""

# ruff: noqa: N803 - compile-time constants of a kernel are upper case, as Triton's own are

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 128
"""Pieces a program: two 16-byte moves a thread. No cache hint made the write faster on an H200, some made it 8 % slower."""

LIMIT = 2**31 - 2**20
"""Pieces of one launch: they are counted in 32 bits, addresses in 64."""


@triton.jit(do_not_specialize=["rows"])
def write_kv_kernel(
    pool, kv, loc, kv_row, rows, PIECES: tl.constexpr, UNITS: tl.constexpr, STEP: tl.constexpr, BLOCK: tl.constexpr
):
    """Copy `BLOCK` pieces of consecutive rows; a row is `PIECES` pieces, a piece `UNITS` neighbouring units.

    Rows of `kv` are `kv_row * STEP` units apart: with `STEP` the compiler knows that a piece is aligned. Pieces are dealt
    over the flattened rows, so that no lane is idle whatever the width of a row.
    """
    piece = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = (piece // PIECES).to(tl.int64)
    inside = row < rows
    slot = tl.load(loc + row, mask=inside, other=-1)
    column = (piece % PIECES * UNITS)[:, None] + tl.arange(0, UNITS)[None, :]
    values = tl.load(kv + (row * kv_row * STEP)[:, None] + column, mask=inside[:, None])
    tl.store(pool + (slot * (PIECES * UNITS))[:, None] + column, values, mask=(inside & (slot >= 0))[:, None])


def write_kv(pool: Tensor, kv: Tensor, loc: Tensor) -> None:
    """Launch the write.

    Args:
        pool: uint8 [num_slots, row_bytes], dense.
        kv: uint8 [n, row_bytes], last stride 1.
        loc: int64 [n], dense; negative: not written.
    """
    rows, width = kv.shape
    if (width | kv.stride(0) | kv.data_ptr() | pool.data_ptr()) % 4 == 0:
        pool, kv = pool.view(torch.int32), kv.view(torch.int32)
        width //= 4
    units = math.gcd(width, 4)
    pieces, step = width // units, math.gcd(kv.stride(0), units)
    for start in range(0, rows, LIMIT // pieces):
        count = min(rows - start, LIMIT // pieces)
        write_kv_kernel[(triton.cdiv(count * pieces, BLOCK),)](
            pool, kv[start:], loc[start:], kv.stride(0) // step, count, pieces, units, step, BLOCK, num_warps=2
        )
