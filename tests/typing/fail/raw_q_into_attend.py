"""Queries that nobody rotated."""

from dsa_contracts import CpBatch, Ten
from dsa_contracts.core.marks import BF16, F32, Contiguous
from dsa_contracts.dsa.aliases import CausalLens, KvCache, PageTable, RequestOfRow, TopkIndices
from dsa_contracts.dsa.dims import NnzLocal, NumLocalHeads, QkHeadDim
from dsa_contracts.dsa.row_formats import bf16_format
from dsa_contracts.dsa.states import Bf16Row, Local, Raw
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import attend


def layer(
    q: Ten[Local[Zigzag], Raw, BF16, Contiguous, NnzLocal, NumLocalHeads, QkHeadDim],
    pool: KvCache[Bf16Row],
    topk_indices: TopkIndices[Zigzag, NnzLocal],
    causal_lens: CausalLens[Local[Zigzag], NnzLocal],
    request_of_row: RequestOfRow[Local[Zigzag], NnzLocal],
    page_table: PageTable,
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
