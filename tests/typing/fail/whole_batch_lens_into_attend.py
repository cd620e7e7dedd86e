"""The lengths of the whole batch, in sequence order, for the queries of one rank."""

from dsa_contracts import CpBatch
from dsa_contracts.core.marks import BF16, F32
from dsa_contracts.dsa.aliases import CausalLens, KvCache, PageTable, Query, RequestOfRow, TopkIndices
from dsa_contracts.dsa.dims import Nnz, NnzLocal
from dsa_contracts.dsa.row_formats import bf16_format
from dsa_contracts.dsa.states import Bf16Row, Global, Local, Sequence
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import attend


def layer(
    q: Query[Zigzag, BF16, NnzLocal],
    pool: KvCache[Bf16Row],
    topk_indices: TopkIndices[Zigzag, NnzLocal],
    causal_lens: CausalLens[Global[Sequence], Nnz],
    request_of_row: RequestOfRow[Local[Zigzag], NnzLocal],
    page_table: PageTable,
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
