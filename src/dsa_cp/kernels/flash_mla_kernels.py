"""`attend` through FlashMLA's sparse prefill kernel; the one place that imports flash_mla.

The kernel reads bf16 rows. A bf16 pool is read in place, through slots computed from the page table. For flat e4m3 and
`fp8_656` pools the pages that the batch can see are converted to bf16 once a layer, in the order of its page table: that
costs a pass over the batch's keys (about 0.5 ns a key), while converting what each row gathers would move topk keys a row,
and converting the pool would grow with the pool. e4m3 codes are exact in bf16; their scale is put into the softmax scale
and the output instead.

Source: sgl-flash-mla 1.0.0 `flash_mla_sparse_fwd(use_legacy=True)`. Measured on an H200: lse is natural, out 0 and lse
+inf for a row without keys, a list length of 0 is legal. 64 or 128 heads, width 576, lists in multiples of 128.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, brand, stage
from dsa_contracts.dsa.aliases import (
    AttentionLse,
    AttentionOut,
    CausalLens,
    KvCache,
    PageTable,
    Query,
    RequestOfRow,
    TopkIndices,
)
from dsa_contracts.dsa.codes import PlanError
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.states import Local
from dsa_contracts.dsa.typevars import AD, ND, QD, RD, F, L, N
from dsa_cp.kernels.requirements import capability_of, require_32_bit_slots, require_aligned, require_one_of, scale_group_of

HEADS = (64, 128)
WIDTH, RANK = 576, 512
CAPABILITIES = (9, 10)
"""Major compute capabilities that the package has sparse prefill kernels for; run so far on 9.0."""


@cache
def _sparse_fwd() -> Callable[..., Any]:
    """Return FlashMLA's entry; raises PlanError DSA401 where the package is missing."""
    try:
        from flash_mla import flash_mla_sparse_fwd
    except ImportError as error:
        raise PlanError(f"flash_mla is not installed: {error}", facts=[("try", "pip install sgl-flash-mla==1.0.0")]) from None
    return flash_mla_sparse_fwd  # type: ignore[no-any-return]


@stage(contracts.attend)
def attend(
    q: Query[L, QD, N],
    pool: KvCache[F],
    topk_indices: TopkIndices[L, N],
    causal_lens: CausalLens[Local[L], N],
    request_of_row: RequestOfRow[Local[L], N],
    page_table: PageTable,
    softmax_scale: float,
    q_scale: float,
    kv_scale: float,
    out_dtype: type[AD],
    row_format: RowFormat[F, ND, RD],
    batch: CpBatch[L],
) -> tuple[AttentionOut[L, AD, N], AttentionLse[L, N]]:
    """See `dsa_contracts.stages.attend`. A key that is named twice counts twice; weights and out are rounded to bf16."""
    rank, group = row_format.part("k_nope").count, scale_group_of("flash_mla attend", row_format)
    _require(q, pool, rank)
    codes = q.view(torch.uint8) if q.dtype == torch.float8_e4m3fn else q
    tables = (causal_lens, request_of_row, page_table)
    scales = (softmax_scale, q_scale, kv_scale)
    out, lse = launch_attend(codes, pool, topk_indices, *tables, *scales, out_dtype.torch_dtype, rank, group)
    return brand(out), brand(lse)


def launch_attend(
    q: Tensor,
    pool: Tensor,
    topk_indices: Tensor,
    causal_lens: Tensor,
    request_of_row: Tensor,
    page_table: Tensor,
    softmax_scale: float,
    q_scale: float,
    kv_scale: float,
    out_dtype: torch.dtype,
    rank: int,
    group: int,
) -> tuple[Tensor, Tensor]:
    """Launch without checks; arguments and results are those of `custom_ops.attend`."""
    from dsa_cp.triton_jit.finish_attend import finish_attend
    from dsa_cp.triton_jit.slots_of_topk import slots_of_topk

    rows, heads, width = q.shape
    if rows == 0:
        return q.new_empty(0, heads, rank, dtype=out_dtype), q.new_empty(0, heads, dtype=torch.float32)
    values = q.view(torch.float8_e4m3fn).to(torch.bfloat16) if q.dtype == torch.uint8 else q
    keys, is_paged = _keys(pool, page_table, group, is_bf16=pool.shape[-1] == 2 * width)
    slots, counts = slots_of_topk(topk_indices, causal_lens, request_of_row, page_table, pool.shape[1], is_paged)
    scale = softmax_scale * q_scale * kv_scale
    mean, _, lse = _sparse_fwd()(values, keys[:, None], slots[:, None], scale, topk_length=counts, use_legacy=True)
    return finish_attend(mean, lse, counts, kv_scale, out_dtype), lse


def _keys(pool: Tensor, page_table: Tensor, group: int, *, is_bf16: bool) -> tuple[Tensor, bool]:
    """Return bf16 [num_keys, width] and whether its rows are slots of the pool (else in the order of the page table)."""
    if is_bf16:
        return pool.view(torch.bfloat16).view(-1, WIDTH), True
    from dsa_cp.triton_jit.dequantize_pages import dequantize_pages

    require_32_bit_slots("flash_mla attend", page_table.numel() * pool.shape[1])
    return dequantize_pages(pool, page_table, RANK, group), False


def _require(q: Tensor, pool: Tensor, rank: int) -> None:
    """Refuse what the kernel is not built for; it would end the process or say less."""
    user = "flash_mla attend"
    major = capability_of(q.device)[0] if q.is_cuda else 0
    require_one_of(user, "compute capabilities of major", major, CAPABILITIES)
    require_one_of(user, "num_local_heads", q.shape[1], HEADS)
    require_one_of(user, "qk_head_dim", q.shape[2], (WIDTH,))
    require_one_of(user, "kv_lora_rank", rank, (RANK,))
    require_32_bit_slots(user, pool.shape[0] * pool.shape[1])
    require_aligned(user, "pool", pool, 16)
