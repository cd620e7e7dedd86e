"""Sparse MLA over gathered keys: bf16, flat e4m3 or `fp8_656` rows, on any GPU from SM90.

A program owns one row and up to 64 heads. Keys come in blocks of 64, gathered by slot, and serve twice: whole against q,
their latent part as values. Softmax is running, in float32, base 2.

What was tried on an H200 (1,024 rows, 128 heads, 2,048 keys; FlashMLA 608 TFLOP/s in bf16): bf16 265 TFLOP/s; e4m3 under
e4m3 queries as float16 215, as e4m3 with sums taken over in float32 every 64 products 260 (error 1.7e-4), without that 296
(error 1.5e-3); slots read one block ahead: slower, for want of registers; blocks of 32 keys: a third slower.
"""

# ruff: noqa: N803 - compile-time constants of a kernel are upper case, as Triton's own are

from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2_E = 1.4426950408889634
TAKE_OVER = 64
"""Products of e4m3 that are summed before the sum is taken over in float32."""
SCRATCH_LIMIT = 1 << 30
"""Bytes of converted keys, at most."""


@triton.jit
def _value(loaded):
    """Return what was loaded; bytes are e4m3 codes."""
    return loaded.to(tl.float8e4nv, bitcast=True) if loaded.dtype == tl.uint8 else loaded


@triton.jit
def _gather(
    latent, scales, slot, inside, FIRST: tl.constexpr, LATENT_ROW: tl.constexpr, SCALE_ROW: tl.constexpr,
    WIDTH: tl.constexpr, GROUPS: tl.constexpr, KEYS: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """Return columns FIRST to FIRST + WIDTH of a block of keys, times the scales that a row holds; no key gives zeros."""
    column = FIRST + tl.arange(0, WIDTH)
    part = tl.load(latent + slot[:, None] * LATENT_ROW + column[None, :], mask=inside[:, None], other=0.0)
    if GROUPS > 0:
        size: tl.constexpr = WIDTH // GROUPS
        group = FIRST // size + tl.arange(0, GROUPS)
        scale = tl.load(scales + slot[:, None] * SCALE_ROW + group[None, :], mask=inside[:, None], other=0.0)
        part = part.to(tl.float32) * tl.reshape(tl.broadcast_to(scale[:, :, None], [KEYS, GROUPS, size]), [KEYS, WIDTH])
    return part.to(DTYPE)


@triton.jit
def attend_kernel(
    q, latent, rotated, scales, slots, counts, out, lse, score_scale, value_scale,
    LATENT_ROW: tl.constexpr, ROPE_ROW: tl.constexpr, SCALE_ROW: tl.constexpr, TOPK: tl.constexpr,
    HEADS: tl.constexpr, RANK: tl.constexpr, ROPE: tl.constexpr, GROUPS: tl.constexpr,
    BLOCK_HEADS: tl.constexpr, BLOCK_KEYS: tl.constexpr, STAGES: tl.constexpr, SCORE: tl.constexpr, VALUE: tl.constexpr,
    TAKE_OVER: tl.constexpr,
):  # fmt: skip
    """`score_scale` turns a product into a base-2 exponent, `value_scale` the weighted mean of codes into values.

    The latent is worked through in two halves, so that half as many registers hold converted keys at a time. `SCORE` is
    the dtype of the products q . k, `VALUE` that of weights and values. e4m3 products are summed in few bits: every
    `TAKE_OVER` of them the sum is taken over in float32.
    """
    blocks: tl.constexpr = (HEADS + BLOCK_HEADS - 1) // BLOCK_HEADS
    half: tl.constexpr = RANK // 2
    row = (tl.program_id(0) // blocks).to(tl.int64)
    head = tl.program_id(0) % blocks * BLOCK_HEADS + tl.arange(0, BLOCK_HEADS)
    column, pair, key = tl.arange(0, half), tl.arange(0, ROPE), tl.arange(0, BLOCK_KEYS)
    real = None if HEADS % BLOCK_HEADS == 0 else (head < HEADS)[:, None]
    source = q + (row * HEADS + head[:, None]) * (RANK + ROPE)
    q_low = _value(tl.load(source + column[None, :], mask=real)).to(SCORE)
    q_high = _value(tl.load(source + half + column[None, :], mask=real)).to(SCORE)
    q_rope = _value(tl.load(source + RANK + pair[None, :], mask=real)).to(SCORE)
    top = tl.full([BLOCK_HEADS], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_HEADS], tl.float32)
    low = tl.zeros([BLOCK_HEADS, half], tl.float32)
    high = tl.zeros([BLOCK_HEADS, half], tl.float32)
    count = tl.load(counts + row)
    for start in tl.range(0, count, BLOCK_KEYS, num_stages=STAGES):
        slot = tl.load(slots + row * TOPK + start + key)
        inside, at = slot >= 0, slot.to(tl.int64)
        k_rope = tl.load(rotated + at[:, None] * ROPE_ROW + pair[None, :], mask=inside[:, None], other=0.0)
        k_low = _gather(latent, scales, at, inside, 0, LATENT_ROW, SCALE_ROW, half, GROUPS // 2, BLOCK_KEYS, SCORE)
        k_high = _gather(latent, scales, at, inside, half, LATENT_ROW, SCALE_ROW, half, GROUPS // 2, BLOCK_KEYS, SCORE)
        scores = tl.dot(q_rope, tl.trans(k_rope.to(SCORE)), max_num_imprecise_acc=TAKE_OVER)
        scores = tl.dot(q_low, tl.trans(k_low), scores, max_num_imprecise_acc=TAKE_OVER)
        scores = tl.dot(q_high, tl.trans(k_high), scores, max_num_imprecise_acc=TAKE_OVER)
        scores = tl.where(inside[None, :], scores * score_scale, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, axis=1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp2(scores - base[:, None])
        shrink = tl.exp2(top - base)
        total = total * shrink + tl.sum(weights, axis=1)
        weights = weights.to(VALUE)
        low = tl.dot(weights, k_low.to(VALUE), low * shrink[:, None])
        high = tl.dot(weights, k_high.to(VALUE), high * shrink[:, None])
        top = higher
    part = tl.where(total == 0, 0.0, value_scale / total)[:, None]
    target = out + (row * HEADS + head[:, None]) * RANK + column[None, :]
    tl.store(target, (low * part).to(out.dtype.element_ty), mask=real)
    tl.store(target + half, (high * part).to(out.dtype.element_ty), mask=real)
    natural = tl.where(total == 0, float("-inf"), (top + tl.log2(total)) * 0.6931471805599453)
    tl.store(lse + row * HEADS + head, natural, mask=None if HEADS % BLOCK_HEADS == 0 else head < HEADS)


class Tile(NamedTuple):
    """How a launch is cut: heads and keys of a program's tile, blocks in flight, warps."""

    heads: int
    keys: int
    stages: int
    warps: int


class _Keys(NamedTuple):
    """A pool seen by the kernel: element views, their row strides, scale groups a row."""

    latent: Tensor
    rotated: Tensor
    scales: Tensor
    strides: tuple[int, int, int]
    groups: int


def tile_for(heads: int, shared_memory: int, *, is_native: bool) -> Tile:
    """Return the tile for a number of heads on a GPU with so many bytes of shared memory a program."""
    if heads > 32 and shared_memory >= 222 * 1024:
        return Tile(64, 64, 3 if is_native else 2, 8)
    if shared_memory >= 160 * 1024:
        return Tile(max(16, min(32, triton.next_power_of_2(heads))), 64, 2, 4)
    return Tile(16, 32, 2, 4)


@cache
def _shared_memory(device: torch.device) -> int:
    """Return the bytes of shared memory that one program may use."""
    properties = torch.cuda.get_device_properties(device)
    return int(getattr(properties, "shared_memory_per_block_optin", properties.shared_memory_per_block))


def multiplies_codes(heads: int, rope: int) -> bool:
    """Whether e4m3 is multiplied as it is: tiles of 64 heads, and products of at least 32 elements."""
    return heads > 32 and rope >= TAKE_OVER


def pays_to_convert(q: Tensor, pool: Tensor, topk: int, pages: int, group: int, rank: int) -> bool:
    """Whether to convert the batch's pages to two bytes an element once, instead of each gathered key; by shapes alone.

    Measured on an H200 with 2,048 keys a row: a converted key costs 0.5 ns once, converting gathered keys 0.2 to 0.5 ns a
    row and key. Flat e4m3 under e4m3 queries and many heads is multiplied as it is, which is faster still. The kernel
    works through a latent in halves, so that one whose halves are in one scale group must be converted.
    """
    keys, width = pages * pool.shape[1], q.shape[2]
    if group and rank < 2 * group:
        return True
    if not group and (pool.shape[2] != width or (q.dtype == torch.uint8 and multiplies_codes(q.shape[1], width - rank))):
        return False
    return q.shape[0] * topk >= 2 * keys and keys * width * 2 <= SCRATCH_LIMIT


def _keys_of(pool: Tensor, rank: int, width: int, group: int, two_bytes: torch.dtype) -> _Keys:
    """Return a pool as the kernel reads it; see `attend` for the arguments."""
    row_bytes, flat = pool.shape[-1], pool.view(-1)
    if group:
        groups = rank // group
        rotated = flat.view(torch.bfloat16)[(rank + 4 * groups) // 2 :]
        strides = (row_bytes, row_bytes // 2, row_bytes // 4)
        return _Keys(flat.view(torch.float8_e4m3fn), rotated, flat.view(torch.float32)[rank // 4 :], strides, groups)
    flat = flat.view(torch.float8_e4m3fn if row_bytes == width else two_bytes)
    return _Keys(flat, flat[rank:], flat, (width, width, 0), 0)


def attend(
    q: Tensor,
    pool: Tensor,
    slots: Tensor,
    counts: Tensor,
    score_scale: float,
    value_scale: float,
    out_dtype: torch.dtype,
    rank: int,
    group: int,
    two_bytes: torch.dtype = torch.bfloat16,
    tile: Tile | None = None,
) -> tuple[Tensor, Tensor]:
    """Launch; returns out [n, heads, rank] and lse float32 [n, heads].

    Args:
        q: bf16 or fp16, or uint8 for e4m3 codes, [n, heads, width], dense.
        pool: uint8 [num_pages, page_size, row_bytes], dense.
        slots: int32 [n, a multiple of 128], rows of the pool; -1: none.
        counts: int32 [n]; entries of `slots` from there on are -1.
        score_scale: multiplies q . k.
        value_scale: multiplies the mean of the values.
        out_dtype: dtype of out.
        rank: width of the latent.
        group: codes under one scale of the row; 0 for bf16 rows and for flat e4m3 rows.
        two_bytes: dtype of the pool's elements where they have two bytes.
        tile: how to cut the work; None: by the number of heads.
    """
    rows, heads, width = q.shape
    out = torch.empty(rows, heads, rank, dtype=out_dtype, device=q.device)
    lse = torch.empty(rows, heads, dtype=torch.float32, device=q.device)
    if rows == 0:
        return out, lse
    keys = _keys_of(pool, rank, width, group, two_bytes)
    is_code, is_flat = q.dtype == torch.uint8, keys.latent.dtype == torch.float8_e4m3fn and not group
    is_native = is_code and is_flat and multiplies_codes(heads, width - rank)
    value = tl.float16 if (is_code and is_flat) or two_bytes == torch.float16 else tl.bfloat16
    tile = tile or tile_for(heads, _shared_memory(q.device), is_native=is_native)
    attend_kernel[(rows * triton.cdiv(heads, tile.heads),)](
        q, keys.latent, keys.rotated, keys.scales, slots, counts, out, lse, score_scale * LOG2_E, value_scale,
        *keys.strides, slots.shape[1], heads, rank, width - rank, keys.groups, tile.heads, tile.keys, tile.stages,
        tl.float8e4nv if is_native else value, value, TAKE_OVER if is_native else None, num_warps=tile.warps,
    )  # fmt: skip
    return out, lse
