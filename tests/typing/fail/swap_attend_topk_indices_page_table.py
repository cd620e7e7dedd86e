"""Chosen keys and the page table of `attend`, swapped: int32 in two dims each."""

from dsa_contracts import CpBatch
from dsa_contracts.core.marks import BF16, F32
from dsa_contracts.dsa.aliases import CausalLens, KvCache, PageTable, Query, RequestOfRow, TopkIndices
from dsa_contracts.dsa.dims import NnzLocal
from dsa_contracts.dsa.row_formats import bf16_format
from dsa_contracts.dsa.states import Bf16Row, Local
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import attend


def layer(
    q: Query[Zigzag, BF16, NnzLocal],
    pool: KvCache[Bf16Row],
    topk: TopkIndices[Zigzag, NnzLocal],
    lens: CausalLens[Local[Zigzag], NnzLocal],
    requests: RequestOfRow[Local[Zigzag], NnzLocal],
    page_table: PageTable,
    batch: CpBatch[Zigzag],
) -> None:
    attend(q, pool, topk, lens, requests, page_table, 0.1, 1.0, 1.0, F32, bf16_format(), batch)
    attend(q, pool, page_table, lens, requests, topk, 0.1, 1.0, 1.0, F32, bf16_format(), batch)  # refused
