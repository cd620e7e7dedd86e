"""Rows with the engine's padding from RoPE to attention; the pool holds real rows only."""

from dsa_contracts import CpBatch, RopeStyle, Ten
from dsa_contracts.core.marks import BF16, F32, I32, U8, Contiguous, Plain, UnitLast
from dsa_contracts.dsa.dims import (
    CosSinWidth,
    IndexTopk,
    KvLoraRank,
    MaxPages,
    MaxPosition,
    NnzPadded,
    NumLocalHeads,
    NumPages,
    NumRequests,
    PageSize,
    QkRopeHeadDim,
    RowBytes,
)
from dsa_contracts.dsa.row_formats import bf16_format
from dsa_contracts.dsa.states import Bf16Row, Local, Packed, PerRequest, Pool, Raw, Rotated, Table
from dsa_cp.layer.local_batch import padded_local_batch
from dsa_cp.layouts import VllmZigzag
from dsa_cp.stages import apply_rope, attend, merge_q


def layer(
    q_nope: Ten[Local[VllmZigzag], Plain, BF16, UnitLast, NnzPadded, NumLocalHeads, KvLoraRank],
    q_rope: Ten[Local[VllmZigzag], Raw, BF16, UnitLast, NnzPadded, NumLocalHeads, QkRopeHeadDim],
    cos_sin_cache: Ten[Table, Plain, F32, Contiguous, MaxPosition, CosSinWidth],
    pool: Ten[Pool, Packed[Bf16Row, Rotated], U8, Contiguous, NumPages, PageSize, RowBytes],
    topk_indices: Ten[Local[VllmZigzag], Plain, I32, Contiguous, NnzPadded, IndexTopk],
    page_table: Ten[PerRequest, Plain, I32, Contiguous, NumRequests, MaxPages],
    batch: CpBatch[VllmZigzag],
) -> Ten[Local[VllmZigzag], Plain, F32, Contiguous, NnzPadded, NumLocalHeads, KvLoraRank]:
    local = padded_local_batch(batch)
    rotated = apply_rope(q_rope, local.positions, cos_sin_cache, 64, RopeStyle.NEOX, batch)
    q = merge_q(q_nope, rotated, batch)
    lens, requests = local.causal_lens, local.request_of_row
    out, _ = attend(q, pool, topk_indices, lens, requests, page_table, 0.1, 1.0, 1.0, F32, bf16_format(), batch)
    return out
