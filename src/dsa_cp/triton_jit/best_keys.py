"""The lightning indexer on a GPU: scores of every visible key, then the best of them, without a word to the host.

A score is a sum over heads of products of bf16 in float32; it depends on the row and the key alone, so that every number of
ranks chooses the same keys. The choice is a radix select: four histograms of eight bits find the score of the last key that
is taken, and one more pass writes positions as they come, so that they rise, and of equal scores the earlier one is taken.
"""

# ruff: noqa: N803 - compile-time constants of a kernel are upper case, as Triton's own are

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK_KEYS = 128
"""Keys of one product: 128 keys x 64 heads are 64 registers a thread."""

CHUNK = 2048
"""Keys that a program scores with the queries that it has loaded."""

SELECT_BLOCK = 4096
"""Scores that a program looks at at once."""

SCORE_BYTES = 1 << 29
"""Bytes of scores that stand at one time; more rows are done one part after the other."""

FLAT_BYTES = 1 << 30
"""Bytes of keys that are laid out anew for a call, at most."""

FLAT_ROWS = 8
"""Rows a request from which it pays to lay out its keys anew: rows of 132 bytes are read 4 bytes at a time."""

LOWEST = tl.constexpr(-3.4028234663852886e38)
"""The score of a key whose score is NaN: below every other, above none that the row may see."""


@triton.jit(do_not_specialize=["first_row"])
def index_scores_kernel(
    q, weights, pool, scales, causal_lens, request_of_row, page_table, scores, first_row,
    q_row, q_head, weight_row, max_pages, score_row,
    HEADS: tl.constexpr, DIM: tl.constexpr, COUNT: tl.constexpr, PAGE_SIZE: tl.constexpr, ROW_BYTES: tl.constexpr,
    QUANTIZED: tl.constexpr, FLAT: tl.constexpr, BLOCK_HEADS: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """One row and `CHUNK` of its keys a program. Rows that take every key that they see need no scores.

    FLAT: `pool` has the codes of each request's keys in order, `scales` their scales.
    """
    local = tl.program_id(0).to(tl.int64)
    row = local + first_row
    first = tl.program_id(1) * CHUNK
    length = tl.load(causal_lens + row)
    if (length > COUNT) & (first < length):
        head, dim = tl.arange(0, BLOCK_HEADS), tl.arange(0, DIM)
        query = tl.load(q + row * q_row + head[None, :] * q_head + dim[:, None], mask=(head < HEADS)[None, :], other=0.0)
        weight = tl.load(weights + row * weight_row + head, mask=head < HEADS, other=0.0)
        first_page = tl.load(request_of_row + row).to(tl.int64) * max_pages
        for start in range(first, tl.minimum(first + CHUNK, length), BLOCK):
            key = start + tl.arange(0, BLOCK)
            seen = key < length
            if FLAT:
                slot = first_page * PAGE_SIZE + key
            else:
                page = tl.load(page_table + first_page + key // PAGE_SIZE, mask=seen, other=0).to(tl.int64)
                # Without the hint the compiler takes slots for multiples of the page size, and rows for aligned to 16 bytes.
                slot = tl.multiple_of(page * PAGE_SIZE + key % PAGE_SIZE, 1)
            stored = pool + slot * ROW_BYTES
            if QUANTIZED:
                codes = tl.load(stored[:, None] + dim[None, :], mask=seen[:, None], other=0)
                keys = codes.to(tl.float8e4nv, bitcast=True).to(tl.bfloat16)
            else:
                keys = tl.load(stored.to(tl.pointer_type(tl.bfloat16))[:, None] + dim[None, :], mask=seen[:, None], other=0.0)
            product = tl.maximum(tl.dot(keys, query), 0.0, propagate_nan=tl.PropagateNan.ALL)
            score = tl.sum(product * weight[None, :], axis=1)
            if FLAT:
                score *= tl.load(scales + slot, mask=seen, other=0.0)
            elif QUANTIZED:
                score *= tl.load((stored + DIM).to(tl.pointer_type(tl.float32)), mask=seen, other=0.0)
            # A sum of -0.0 is a 0.0, which it must tie with.
            score = tl.where(score == score, tl.maximum(score, LOWEST), LOWEST) + 0.0
            tl.store(scores + local * score_row + key, score, mask=seen)


@triton.jit
def _rising(score):
    """Return the bits of float32 as unsigned numbers that rise as they do."""
    bits = score.to(tl.uint32, bitcast=True)
    return tl.where((bits >> 31) == 1, bits ^ 0xFFFFFFFF, bits | 0x80000000)


@triton.jit(do_not_specialize=["first_row"])
def best_keys_kernel(
    scores, causal_lens, chosen, first_row, score_row, COUNT: tl.constexpr, OUT_BLOCK: tl.constexpr, BLOCK: tl.constexpr
):
    """One row a program: its `COUNT` best positions, rising."""
    local = tl.program_id(0).to(tl.int64)
    row = local + first_row
    length = tl.load(causal_lens + row)
    out = chosen + row * COUNT
    mine = scores + local * score_row
    if length <= COUNT:
        at = tl.arange(0, OUT_BLOCK)
        tl.store(out + at, tl.where(at < length, at, -1), mask=at < COUNT)
    else:
        digits = tl.arange(0, 256)
        needed = tl.full([], COUNT, tl.int32)
        prefix = tl.full([], 0, tl.uint32)
        for step in tl.static_range(4):
            counts = tl.zeros([256], tl.int32)
            for start in range(0, length, BLOCK):
                at = start + tl.arange(0, BLOCK)
                rising = _rising(tl.load(mine + at, mask=at < length, other=0.0))
                fits = at < length
                if step > 0:
                    fits = fits & ((rising >> (32 - 8 * step)) == prefix)
                counts += tl.histogram(((rising >> (24 - 8 * step)) & 255).to(tl.int32), 256, mask=fits)
            from_here = tl.cumsum(counts, axis=0, reverse=True)
            above = from_here - counts
            here = (from_here >= needed) & (above < needed)
            prefix = (prefix << 8) | tl.sum(tl.where(here, digits, 0)).to(tl.uint32)
            needed -= tl.sum(tl.where(here, above, 0))
        written = tl.full([], 0, tl.int32)
        level_before = tl.full([], 0, tl.int32)
        for start in range(0, length, BLOCK):
            at = start + tl.arange(0, BLOCK)
            inside = at < length
            rising = _rising(tl.load(mine + at, mask=inside, other=0.0))
            level = (inside & (rising == prefix)).to(tl.int32)
            room = level_before + tl.cumsum(level, axis=0) <= needed
            taken = ((inside & (rising > prefix)) | ((level == 1) & room)).to(tl.int32)
            place = written + tl.cumsum(taken, axis=0) - 1
            tl.store(out + place, at, mask=taken == 1)
            written += tl.sum(taken)
            level_before += tl.sum(level)


def best_keys(
    q_index: Tensor,
    head_weights: Tensor,
    pool: Tensor,
    causal_lens: Tensor,
    request_of_row: Tensor,
    page_table: Tensor,
    count: int,
    max_keys: int,
    is_quantized: bool,
) -> Tensor:
    """Launch; returns int32 [n, count], positions of each row's best keys, rising; -1 fills the rest.

    Args:
        q_index: bf16 [n, heads, d], last stride 1.
        head_weights: float32 [n, heads], last stride 1.
        pool: uint8 [num_pages, page_size, row_bytes], dense.
        causal_lens: int32 [n].
        request_of_row: int32 [n].
        page_table: int32 [num_requests, max_pages].
        count: keys to choose.
        max_keys: no row sees more; known to the host.
        is_quantized: whether rows are e4m3 codes and one float32 scale, not bf16.
    """
    rows, heads, dim = q_index.shape
    chosen = torch.empty(rows, count, dtype=torch.int32, device=q_index.device)
    width = triton.cdiv(max(max_keys, 1), 4) * 4
    part = max(1, min(rows, SCORE_BYTES // (4 * width)))
    codes, scales, is_flat = pool, pool, False
    if is_quantized and max_keys > count and rows >= FLAT_ROWS * page_table.shape[0]:
        codes, scales, is_flat = _flat_keys(pool, page_table, dim)
    scores = torch.empty(part if max_keys > count else 0, width, dtype=torch.float32, device=q_index.device)
    for first in range(0, rows, part):
        number = min(part, rows - first)
        if max_keys > count:
            index_scores_kernel[(number, triton.cdiv(max_keys, CHUNK))](
                q_index, head_weights, codes, scales, causal_lens, request_of_row, page_table, scores, first,
                *q_index.stride()[:2], head_weights.stride(0), page_table.shape[1], width,
                heads, dim, count, pool.shape[1], codes.shape[-1], is_quantized, is_flat,
                max(16, triton.next_power_of_2(heads)), BLOCK_KEYS, CHUNK, num_warps=4,
            )  # fmt: skip
        best_keys_kernel[(number,)](
            scores, causal_lens, chosen, first, width, count, triton.next_power_of_2(count), SELECT_BLOCK, num_warps=8
        )
    return chosen


def _flat_keys(pool: Tensor, page_table: Tensor, dim: int) -> tuple[Tensor, Tensor, bool]:
    """Return codes uint8 [requests, keys, dim] and float32 scales, in the order of each request's keys, and True.

    Where that would be too much: the pool, twice, and False.
    """
    if page_table.numel() * pool.shape[1] * pool.shape[2] > FLAT_BYTES:
        return pool, pool, False
    # Entries behind a request's last page may be anything; no row looks at what stands there.
    rows = pool.index_select(0, page_table.flatten().clamp(0, pool.shape[0] - 1))
    return rows[..., :dim].contiguous(), rows[..., dim:].contiguous().view(torch.float32), True
