"""Top-k positions into rows of a flat key buffer, with how far each row's list must be read."""

# ruff: noqa: N803 - compile-time constants of a kernel are upper case, as Triton's own are

import torch
import triton
import triton.language as tl
from torch import Tensor

TOPK_MULTIPLE = 128
"""Lists are padded with -1 to a multiple of this: what `flash_mla_sparse_fwd` takes, and whole blocks for Triton."""


@triton.jit
def slots_of_topk_kernel(
    topk, causal_lens, request_of_row, page_table, slots, counts,
    max_pages, TOPK: tl.constexpr, PADDED: tl.constexpr, PAGE_SIZE: tl.constexpr, PAGED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row a program. An entry outside 0..causal_len-1 becomes -1; `counts` is the last legal entry's place + 1."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    entry = tl.load(topk + row * TOPK + at, mask=at < TOPK, other=-1)
    legal = (entry >= 0) & (entry < tl.load(causal_lens + row))
    first_page = tl.load(request_of_row + row).to(tl.int64) * max_pages
    if PAGED:
        page = tl.load(page_table + first_page + entry // PAGE_SIZE, mask=legal, other=0)
        slot = page * PAGE_SIZE + entry % PAGE_SIZE
    else:
        slot = (first_page * PAGE_SIZE).to(tl.int32) + entry
    tl.store(slots + row * PADDED + at, tl.where(legal, slot, -1), mask=at < PADDED)
    tl.store(counts + row, tl.max(tl.where(legal, at + 1, 0), axis=0))


def slots_of_topk(
    topk: Tensor, causal_lens: Tensor, request_of_row: Tensor, page_table: Tensor, page_size: int, is_paged: bool
) -> tuple[Tensor, Tensor]:
    """Launch; returns int32 [n, padded topk] rows of the key buffer, -1 for none, and int32 [n] counts.

    Args:
        topk: int32 [n, topk], positions inside each row's request.
        causal_lens: int32 [n].
        request_of_row: int32 [n].
        page_table: int32 [num_requests, max_pages].
        page_size: slots of a page.
        is_paged: whether keys are looked up through the page table; else the buffer holds each request's pages in order.
    """
    rows, width = topk.shape
    padded = triton.cdiv(width, TOPK_MULTIPLE) * TOPK_MULTIPLE
    slots = torch.empty(rows, padded, dtype=torch.int32, device=topk.device)
    counts = torch.empty(rows, dtype=torch.int32, device=topk.device)
    if rows:
        slots_of_topk_kernel[(rows,)](
            topk, causal_lens, request_of_row, page_table, slots, counts, page_table.shape[1],
            width, padded, page_size, is_paged, triton.next_power_of_2(padded), num_warps=4,
        )  # fmt: skip
    return slots, counts
