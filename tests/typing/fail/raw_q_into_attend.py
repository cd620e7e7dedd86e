"""Queries that nobody rotated."""

from dsa_contracts import CpBatch, Ten
from dsa_contracts.core.marks import BF16, F32, I32, U8, Contiguous, Plain
from dsa_contracts.dsa.dims import (
    IndexTopk,
    MaxPages,
    NnzLocal,
    NumLocalHeads,
    NumPages,
    NumRequests,
    PageSize,
    QkHeadDim,
    RowBytes,
)
from dsa_contracts.dsa.row_formats import bf16_format
from dsa_contracts.dsa.states import Bf16Row, Local, Packed, PerRequest, Pool, Raw, Rotated
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import attend


def layer(
    q: Ten[Local[Zigzag], Raw, BF16, Contiguous, NnzLocal, NumLocalHeads, QkHeadDim],
    pool: Ten[Pool, Packed[Bf16Row, Rotated], U8, Contiguous, NumPages, PageSize, RowBytes],
    topk_indices: Ten[Local[Zigzag], Plain, I32, Contiguous, NnzLocal, IndexTopk],
    causal_lens: Ten[Local[Zigzag], Plain, I32, Contiguous, NnzLocal],
    request_of_row: Ten[Local[Zigzag], Plain, I32, Contiguous, NnzLocal],
    page_table: Ten[PerRequest, Plain, I32, Contiguous, NumRequests, MaxPages],
    batch: CpBatch[Zigzag],
) -> None:
    attend(
        q,  # refused
        pool,
        topk_indices,
        causal_lens,
        request_of_row,
        page_table,
        0.1,
        1.0,
        1.0,
        F32,
        bf16_format(),
        batch,
    )
