"""The quantising write of vLLM's order, written by us from its description; imported when asked for."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# ruff: noqa: N803 - constants of a kernel are written in capitals, as Triton's own are

import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]


@triton.jit(do_not_specialize=["rows"])
def quantize_write(latent, rope, loc, pool, rows, RANK: tl.constexpr, ROPE: tl.constexpr, ROWS: tl.constexpr):
    """Each bf16 row stands as e4m3 in its slot of `pool`, e4m3 [slots, RANK + ROPE]; a negative slot is not written."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    slot = tl.load(loc + row, mask=row < rows, other=-1)
    wide, narrow = tl.arange(0, RANK), tl.arange(0, ROPE)
    is_written = (slot >= 0)[:, None]
    values = tl.load(latent + (row * RANK)[:, None] + wide[None, :], mask=is_written)
    rotated = tl.load(rope + (row * ROPE)[:, None] + narrow[None, :], mask=is_written)
    at = (slot * (RANK + ROPE))[:, None]
    tl.store(pool + at + wide[None, :], values.to(tl.float32).to(tl.float8e4nv), mask=is_written)
    tl.store(pool + at + RANK + narrow[None, :], rotated.to(tl.float32).to(tl.float8e4nv), mask=is_written)


@triton.jit(do_not_specialize=["rows"])
def quantize_write_index(key, loc, codes, scales, rows, SIZE: tl.constexpr, ROWS: tl.constexpr):
    """Each bf16 key stands as e4m3 under one float32 scale in its slot; `codes` and `scales` are one pool, seen twice."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    slot = tl.load(loc + row, mask=row < rows, other=-1)
    element = tl.arange(0, SIZE)
    is_written = (slot >= 0)[:, None]
    values = tl.load(key + (row * SIZE)[:, None] + element[None, :], mask=is_written, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.math.div_rn(tl.max(tl.abs(values), axis=1), 448.0), 1.1754943508222875e-38)
    quantized = tl.math.div_rn(values, tl.broadcast_to(scale[:, None], values.shape)).to(tl.float8e4nv)
    tl.store(codes + (slot * (SIZE + 4))[:, None] + element[None, :], quantized, mask=is_written)
    tl.store(scales + slot * (SIZE // 4 + 1) + SIZE // 4, scale, mask=slot >= 0)
