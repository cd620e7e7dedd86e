"""Reference of `select_topk`: the lightning indexer's scores in float64."""

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, brand, stage
from dsa_contracts.dsa.aliases import CausalLens, IndexQuery, IndexWeights, KvCache, PageTable, RequestOfRow, TopkIndices
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.states import Local, Rotated
from dsa_contracts.dsa.typevars import ND, RD, F, L, N
from dsa_cp.numerics.best_keys import best_keys


@stage(contracts.select_topk)
def select_topk(
    q_index: IndexQuery[L, Rotated, N],
    head_weights: IndexWeights[L, N],
    pool: KvCache[F],
    causal_lens: CausalLens[Local[L], N],
    request_of_row: RequestOfRow[Local[L], N],
    page_table: PageTable,
    index_topk: int,
    row_format: RowFormat[F, ND, RD],
    batch: CpBatch[L],
) -> TopkIndices[L, N]:
    """See `dsa_contracts.stages.select_topk`."""
    return brand(
        best_keys(q_index, head_weights, pool, causal_lens, request_of_row, page_table, index_topk, row_format.is_quantized)
    )
