"""The pages that a batch can see, as bf16 or fp16 rows in the order of its page table."""

# ruff: noqa: N803 - compile-time constants of a kernel are upper case, as Triton's own are

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096
ROWS = 8


@triton.jit
def _flat_kernel(pool, page_table, keys, num_pages, PAGE: tl.constexpr, BLOCK: tl.constexpr):
    """`BLOCK` codes of one page a program; a page is `PAGE` codes. e4m3 is a subset of bf16 and of fp16: values are exact."""
    at = tl.program_id(0).to(tl.int64)
    page = tl.load(page_table + at).to(tl.int64)
    code = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (code < PAGE) & (page >= 0) & (page < num_pages)
    values = tl.load(pool + page * PAGE + code, mask=inside)
    tl.store(keys + at * PAGE + code, values.to(tl.float32).to(keys.dtype.element_ty), mask=inside)


@triton.jit
def _grouped_kernel(
    codes, scales, rotated, page_table, keys, num_pages,
    PAGE_SIZE: tl.constexpr, GROUPS: tl.constexpr, SIZE: tl.constexpr, ROPE: tl.constexpr, ROW_BYTES: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """`ROWS` rows of one page a program: code * scale rounded to bf16, the rope part as it is."""
    width: tl.constexpr = GROUPS * SIZE + ROPE
    at = tl.program_id(0).to(tl.int64)
    page = tl.load(page_table + at).to(tl.int64)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    inside = (row < PAGE_SIZE) & (page >= 0) & (page < num_pages)
    source, target = page * PAGE_SIZE + row, at * PAGE_SIZE + row
    group, element, pair = tl.arange(0, GROUPS), tl.arange(0, SIZE), tl.arange(0, ROPE)
    column = group[None, :, None] * SIZE + element[None, None, :]
    code = tl.load(codes + source[:, None, None] * ROW_BYTES + column, mask=inside[:, None, None])
    at_scale = source[:, None] * (ROW_BYTES // 4) + GROUPS * SIZE // 4 + group[None, :]
    scale = tl.load(scales + at_scale, mask=inside[:, None])
    latent = (code.to(tl.float32) * scale[:, :, None]).to(tl.bfloat16)
    tl.store(keys + target[:, None, None] * width + column, latent, mask=inside[:, None, None])
    at_rope = source[:, None] * (ROW_BYTES // 2) + GROUPS * (SIZE + 4) // 2 + pair[None, :]
    kept = tl.load(rotated + at_rope, mask=inside[:, None])
    tl.store(keys + target[:, None] * width + GROUPS * SIZE + pair[None, :], kept, mask=inside[:, None])


def dequantize_pages(pool: Tensor, page_table: Tensor, rank: int, group: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Launch; returns [num_requests * max_pages * page_size, rank + rope width]. Rows of no page are not written.

    Args:
        pool: uint8 [num_pages, page_size, row_bytes], dense.
        page_table: int32 [num_requests, max_pages], dense; entries that are no page are passed over.
        rank: width of the latent.
        group: codes under one scale of the row; 0 for flat e4m3 rows.
        dtype: bf16, or fp16 where `group` is 0.
    """
    num_pages, page_size, row_bytes = pool.shape
    pages = page_table.numel()
    rope = (row_bytes - rank - 4 * rank // group) // 2 if group else row_bytes - rank
    keys = torch.empty(pages * page_size, rank + rope, dtype=dtype, device=pool.device)
    if pages == 0:
        return keys
    if group == 0:
        size = page_size * row_bytes
        _flat_kernel[(pages, triton.cdiv(size, BLOCK))](
            pool.view(torch.float8_e4m3fn), page_table, keys, num_pages, size, BLOCK, num_warps=4
        )
    else:
        _grouped_kernel[(pages, triton.cdiv(page_size, ROWS))](
            pool.view(torch.float8_e4m3fn), pool.view(torch.float32), pool.view(torch.bfloat16), page_table, keys, num_pages,
            page_size, rank // group, group, rope, row_bytes, ROWS, num_warps=4,
        )  # fmt: skip
    return keys
