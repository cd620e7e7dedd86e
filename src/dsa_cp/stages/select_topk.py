"""Reference of `select_topk`: the lightning indexer's scores in float64."""

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, Ten, brand, stage
from dsa_contracts.core.marks import BF16, F32, I32, U8, Contiguous, Plain, UnitLast
from dsa_contracts.dsa.dims import IndexHeadDim, IndexTopk, MaxPages, NumIndexHeads, NumPages, NumRequests, PageSize, RowBytes
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.states import Local, Packed, PerRequest, Pool, Rotated
from dsa_contracts.dsa.typevars import ND, RD, F, L, N
from dsa_cp.numerics.best_keys import best_keys


@stage(contracts.select_topk)
def select_topk(
    q_index: Ten[Local[L], Rotated, BF16, UnitLast, N, NumIndexHeads, IndexHeadDim],
    head_weights: Ten[Local[L], Plain, F32, UnitLast, N, NumIndexHeads],
    pool: Ten[Pool, Packed[F, Rotated], U8, Contiguous, NumPages, PageSize, RowBytes],
    causal_lens: Ten[Local[L], Plain, I32, Contiguous, N],
    request_of_row: Ten[Local[L], Plain, I32, Contiguous, N],
    page_table: Ten[PerRequest, Plain, I32, Contiguous, NumRequests, MaxPages],
    index_topk: int,
    row_format: RowFormat[F, ND, RD],
    batch: CpBatch[L],
) -> Ten[Local[L], Plain, I32, Contiguous, N, IndexTopk]:
    """See `dsa_contracts.stages.select_topk`."""
    return brand(
        best_keys(q_index, head_weights, pool, causal_lens, request_of_row, page_table, index_topk, row_format.is_quantized)
    )
