"""RoPE and e4m3 quantisation of q and K in one launch: every byte is read once and written once.

A program owns one token and `BLOCK_HEADS` heads; one more program a token owns K. Consecutive programs read consecutive
memory. Floating-point contraction is off: each product is rounded, then their sum, as the reference does. Loads carry no
cache hint: on an H200 `evict_first` made the launch 9 % slower and a persistent grid 10 to 20 %.
"""

# ruff: noqa: N803 - compile-time constants of a kernel are upper case, as Triton's own are

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK_HEADS = 8
"""Heads a program: two 16-byte loads and one 16-byte store a thread and row of the latent."""


@triton.jit
def _rotate(first, second, cos, sin):
    """Return the rotated members of each pair; `cos` and `sin` are one row for all rows."""
    return first * cos[None, :] - second * sin[None, :], second * cos[None, :] + first * sin[None, :]


@triton.jit
def _code(values):
    """Return the e4m3 codes of float32 values, nearest even and saturated, as bytes."""
    return values.to(tl.float8e4nv).to(tl.uint8, bitcast=True)


@triton.jit
def _quantize_part(
    nope, rope, target, position, table, scale, mask,
    RANK: tl.constexpr, ROPE: tl.constexpr, ROWS: tl.constexpr, NEOX: tl.constexpr,
):  # fmt: skip
    """Write codes [ROWS, RANK + ROPE]: the scaled latent, then the rotated and scaled rope part.

    The loads that depend on nothing come first: the position must arrive before its angles can be asked for.
    `nope`, `rope`, `target` are pointers [ROWS] to the first element of each row.
    """
    half: tl.constexpr = ROPE // 2
    column, pair, whole = tl.arange(0, RANK), tl.arange(0, half), tl.arange(0, ROPE)
    angles = table + tl.load(position) * ROPE
    latent = tl.load(nope[:, None] + column[None, :], mask=mask)
    if NEOX:
        first = tl.load(rope[:, None] + pair[None, :], mask=mask)
        second = tl.load(rope[:, None] + half + pair[None, :], mask=mask)
    else:
        both = tl.load(rope[:, None] + whole[None, :], mask=mask)
        first, second = tl.split(tl.reshape(both, [ROWS, half, 2]))
    codes = _code(latent.to(tl.float32) * scale)
    tl.store(target[:, None] + column[None, :], codes, mask=mask)
    cos, sin = tl.load(angles + pair), tl.load(angles + half + pair)
    first, second = _rotate(first.to(tl.float32), second.to(tl.float32), cos, sin)
    first, second = _code(first * scale), _code(second * scale)
    target += RANK
    if NEOX:
        tl.store(target[:, None] + pair[None, :], first, mask=mask)
        tl.store(target[:, None] + half + pair[None, :], second, mask=mask)
    else:
        joined = tl.reshape(tl.join(first, second), [ROWS, ROPE])
        tl.store(target[:, None] + whole[None, :], joined, mask=mask)


@triton.jit
def rope_quantize_kernel(
    q_nope, q_rope, k_nope, k_rope, positions, table, q_out, kv_out,
    q_nope_row, q_nope_head, q_rope_row, q_rope_head, k_nope_row, k_rope_row,
    scale_q, scale_kv,
    HEADS: tl.constexpr, RANK: tl.constexpr, ROPE: tl.constexpr, NEOX: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One token and `BLOCK` heads a program; the last program of each token writes its packed K row."""
    blocks: tl.constexpr = (HEADS + BLOCK - 1) // BLOCK
    width: tl.constexpr = RANK + ROPE
    token = (tl.program_id(0) // (blocks + 1)).to(tl.int64)
    block = tl.program_id(0) % (blocks + 1)
    if block == blocks:
        one = tl.arange(0, 1)
        _quantize_part(
            k_nope + token * k_nope_row + one, k_rope + token * k_rope_row + one, kv_out + token * width + one,
            positions + token, table, scale_kv, None, RANK, ROPE, 1, NEOX,
        )  # fmt: skip
    else:
        head = (block * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
        _quantize_part(
            q_nope + token * q_nope_row + head * q_nope_head,
            q_rope + token * q_rope_row + head * q_rope_head,
            q_out + (token * HEADS + head) * width,
            positions + token, table, scale_q, None if HEADS % BLOCK == 0 else (head < HEADS)[:, None],
            RANK, ROPE, BLOCK, NEOX,
        )  # fmt: skip


def rope_quantize(
    q_nope: Tensor,
    q_rope: Tensor,
    k_nope: Tensor,
    k_rope: Tensor,
    positions: Tensor,
    cos_sin_cache: Tensor,
    is_neox: bool,
    scale_q: float,
    scale_kv: float,
) -> tuple[Tensor, Tensor]:
    """Launch; returns the bytes of merged q [n, heads, rank + rope] and of packed rows [n, rank + rope].

    Args:
        q_nope: bf16 [n, heads, rank]; last stride 1, as in the next three; row and head strides are free.
        q_rope: bf16 [n, heads, rope].
        k_nope: bf16 [n, rank].
        k_rope: bf16 [n, rope].
        positions: int64 [n], dense.
        cos_sin_cache: float32 [max_position, rope], dense.
        is_neox: whether halves are paired, not neighbours.
        scale_q: multiplies q before the cast.
        scale_kv: multiplies K before the cast.
    """
    rows, heads, rank = q_nope.shape
    rope = q_rope.shape[-1]
    q = torch.empty(rows, heads, rank + rope, dtype=torch.uint8, device=q_nope.device)
    kv = torch.empty(rows, rank + rope, dtype=torch.uint8, device=q_nope.device)
    if rows:
        block = min(BLOCK_HEADS, triton.next_power_of_2(heads))
        rope_quantize_kernel[(rows * (triton.cdiv(heads, block) + 1),)](
            q_nope, q_rope, k_nope, k_rope, positions, cos_sin_cache, q, kv,
            *q_nope.stride()[:2], *q_rope.stride()[:2], k_nope.stride(0), k_rope.stride(0), scale_q, scale_kv,
            heads, rank, rope, is_neox, block, num_warps=4, enable_fp_fusion=False,
        )  # fmt: skip
    return q, kv
