"""Contract of `reorder_causal_lens`."""

from dsa_contracts.core.contract import contract
from dsa_contracts.dsa.aliases import CausalLens, RowIndex
from dsa_contracts.dsa.batch import CpBatch
from dsa_contracts.dsa.dims import Nnz
from dsa_contracts.dsa.invariants import local_values_match_rows, rows_are_this_ranks
from dsa_contracts.dsa.states import Global, Local, Sequence
from dsa_contracts.dsa.typevars import L, N


@contract(
    returns=("local_causal_lens",),
    requires=(rows_are_this_ranks(),),
    ensures=(local_values_match_rows("local_causal_lens", "causal_lens", "DSA117", "causal_lens_match_rows"),),
    advice=(
        ("DSA106", "pass the lengths of the whole batch, in sequence order; they are localised here and nowhere else"),
        ("DSA117", "a length is position + 1 of the same row, in q's order; never subtract or divide in local space"),
    ),
    flow=(("causal_lens", "local_causal_lens"),),
    sources=(
        ("causal_lens", ("batch.causal_lens",)),
        ("rows", ("batch.local_rows", "batch.padded_rows", "batch.shard_rows")),
    ),
)
def reorder_causal_lens(
    causal_lens: CausalLens[Global[Sequence], Nnz],
    rows: RowIndex[Local[L], N],
    batch: CpBatch[L],
) -> CausalLens[Local[L], N]:
    """Keys that each of this rank's rows may see, in the order of its queries.

    Args:
        causal_lens: position + 1 of each row of the batch.
        rows: `batch.local_rows`, or `batch.padded_rows` (-1 marks padding).
        batch: the batch.

    Returns:
        The length of each of `rows`; 0 for padding.

    Row order: local order of the layout. Aliasing: new memory. Sync: none.

    Raises:
        StageInputError: DSA101 to DSA109, DSA119, DSA125.
        StageOutputError: DSA117.

    Source: the `seq_lens` reorder of sglang 0.5.15's `_forward_trtllm` (in-seq-split); upstream calls these expanded
        lengths `seq_lens`, and clamps them to index_topk for its kernel, which no contract of ours does.
    """
