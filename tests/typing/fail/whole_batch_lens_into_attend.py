"""The lengths of the whole batch, in sequence order, for the queries of one rank."""

from dsa_contracts import CpBatch, Ten
from dsa_contracts.core.marks import BF16, F32, I32, U8, Contiguous, Plain
from dsa_contracts.dsa.dims import (
    IndexTopk,
    MaxPages,
    Nnz,
    NnzLocal,
    NumLocalHeads,
    NumPages,
    NumRequests,
    PageSize,
    QkHeadDim,
    RowBytes,
)
from dsa_contracts.dsa.row_formats import bf16_format
from dsa_contracts.dsa.states import Bf16Row, Global, Local, Packed, PerRequest, Pool, Rotated, Sequence
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import attend


def layer(
    q: Ten[Local[Zigzag], Rotated, BF16, Contiguous, NnzLocal, NumLocalHeads, QkHeadDim],
    pool: Ten[Pool, Packed[Bf16Row, Rotated], U8, Contiguous, NumPages, PageSize, RowBytes],
    topk_indices: Ten[Local[Zigzag], Plain, I32, Contiguous, NnzLocal, IndexTopk],
    causal_lens: Ten[Global[Sequence], Plain, I32, Contiguous, Nnz],
    request_of_row: Ten[Local[Zigzag], Plain, I32, Contiguous, NnzLocal],
    page_table: Ten[PerRequest, Plain, I32, Contiguous, NumRequests, MaxPages],
    batch: CpBatch[Zigzag],
) -> None:
    attend(  # refused
        q,
        pool,
        topk_indices,
        causal_lens,  # refused
        request_of_row,
        page_table,
        0.1,
        1.0,
        1.0,
        F32,
        bf16_format(),
        batch,
    )
