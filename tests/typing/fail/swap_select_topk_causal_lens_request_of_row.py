"""Key counts and request ids of `select_topk`, swapped: int32, one a row each."""

from dsa_contracts import CpBatch
from dsa_contracts.dsa.aliases import CausalLens, IndexQuery, IndexWeights, KvCache, PageTable, RequestOfRow
from dsa_contracts.dsa.dims import NnzLocal
from dsa_contracts.dsa.row_formats import index_bf16_format
from dsa_contracts.dsa.states import IndexBf16Row, Local, Rotated
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import select_topk


def layer(
    q_index: IndexQuery[Zigzag, Rotated, NnzLocal],
    head_weights: IndexWeights[Zigzag, NnzLocal],
    pool: KvCache[IndexBf16Row],
    lens: CausalLens[Local[Zigzag], NnzLocal],
    requests: RequestOfRow[Local[Zigzag], NnzLocal],
    page_table: PageTable,
    batch: CpBatch[Zigzag],
) -> None:
    select_topk(q_index, head_weights, pool, lens, requests, page_table, 2048, index_bf16_format(), batch)
    select_topk(q_index, head_weights, pool, requests, lens, page_table, 2048, index_bf16_format(), batch)  # refused
