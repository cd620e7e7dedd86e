"""Contract of `select_topk`."""

from dsa_contracts.core.contract import contract
from dsa_contracts.core.invariant import Call, Invariant
from dsa_contracts.dsa.aliases import CausalLens, IndexQuery, IndexWeights, KvCache, PageTable, RequestOfRow, TopkIndices
from dsa_contracts.dsa.batch import CpBatch
from dsa_contracts.dsa.invariants import (
    choice_is_full,
    local_values_match_rows,
    page_size_is_the_batch_page_size,
    page_table_covers_batch,
    page_table_is_the_batchs,
    pages_are_in_pool,
    pages_have_one_writer,
    row_width_matches_format,
    topk_is_in_range,
    width_is_argument,
    widths_match_format,
)
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.states import Local, Rotated
from dsa_contracts.dsa.typevars import ND, RD, F, L, N


def chooses_at_least_one() -> Invariant:
    """A row chooses at least one key."""

    def check(call: Call) -> str | None:
        count = int(call.number("index_topk"))
        return None if count >= 1 else f"index_topk is {count}"

    return Invariant("chooses_at_least_one", "DSA124", "index_topk", "index_topk >= 1", False, check)


@contract(
    returns=("topk_indices",),
    requires=(
        row_width_matches_format("pool"),
        widths_match_format(("q_index", "k_index")),
        chooses_at_least_one(),
        page_size_is_the_batch_page_size("pool"),
        page_table_covers_batch(),
        pages_are_in_pool("pool"),
        page_table_is_the_batchs(),
        pages_have_one_writer(),
        local_values_match_rows("causal_lens", "causal_lens", "DSA117", "causal_lens_match_rows"),
        local_values_match_rows("request_of_row", "request_of_row", "DSA119", "requests_match_rows"),
    ),
    ensures=(width_is_argument("topk_indices", "index_topk"), topk_is_in_range(), choice_is_full()),
    advice=(("DSA102", "queries, weights, lengths and the request map are this rank's rows, one each"),),
    flow=(("q_index", "topk_indices"), ("pool", "topk_indices")),
    sources=(
        ("causal_lens", ("reorder_causal_lens.local_causal_lens",)),
        ("request_of_row", ("batch.local_request_of_row",)),
        ("page_table", ("batch.page_table",)),
    ),
)
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
    """The keys that each row attends to: the `index_topk` best by the lightning indexer, or all where it sees fewer.

    Args:
        q_index: rotated indexer queries.
        head_weights: weight of each indexer head, scales included.
        pool: pool of the indexer's keys.
        causal_lens: keys that each row may see.
        request_of_row: request of each row.
        page_table: pages of each request.
        index_topk: entries per row.
        row_format: `index_bf16` or `index_fp8`.
        batch: the batch.

    Returns:
        Positions inside the row's request, rising; -1 fills the rest. Of equal scores the earlier position is taken; a key
        whose score is NaN comes after all others.

    Row order: local order, that of `q_index`. Aliasing: new memory. Sync: the reference loops over requests on the host.

    Raises:
        StageInputError: DSA101 to DSA110, DSA114, DSA117, DSA119, DSA124, DSA125.
        StageOutputError: DSA118, DSA124.

    Source: DeepSeek-V3.2 paper, equation 1: score(t) = sum over heads of w_h * relu(q_h . k_t); transformers 5.24.0
        `DeepseekV32Attention` computes the same in float32.
    """
