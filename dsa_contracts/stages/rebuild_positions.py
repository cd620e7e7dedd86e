"""Contract of `rebuild_positions`."""

from dsa_contracts.core.contract import contract
from dsa_contracts.dsa.aliases import RowIndex, TokenPositions
from dsa_contracts.dsa.batch import CpBatch
from dsa_contracts.dsa.dims import Nnz
from dsa_contracts.dsa.invariants import local_values_match_rows, rows_are_this_ranks
from dsa_contracts.dsa.states import Global, Local, Sequence
from dsa_contracts.dsa.typevars import L, N


@contract(
    returns=("positions",),
    requires=(rows_are_this_ranks(),),
    ensures=(local_values_match_rows("positions", "positions", "DSA115", "positions_match_rows"),),
    advice=(
        ("DSA106", "pass the positions of the whole batch, in sequence order, and let this stage cut them"),
        ("DSA115", "take positions from the batch; positions counted 0.. on each rank have the right shape only"),
        ("DSA119", "pass batch.local_rows, or batch.padded_rows where the engine keeps padding rows"),
    ),
    flow=(("positions", "positions"),),
    sources=(("positions", ("batch.positions",)), ("rows", ("batch.local_rows", "batch.padded_rows", "batch.shard_rows"))),
)
def rebuild_positions(
    positions: TokenPositions[Global[Sequence], Nnz],
    rows: RowIndex[Local[L], N],
    batch: CpBatch[L],
) -> TokenPositions[Local[L], N]:
    """Positions of this rank's rows, each in its own request, prefix included.

    Args:
        positions: position of each row of the batch.
        rows: `batch.local_rows`, or `batch.padded_rows` (-1 marks padding).
        batch: the batch.

    Returns:
        The position of each of `rows`; 0 for padding.

    Row order: local order of the layout. Aliasing: new memory. Sync: none.

    Raises:
        StageInputError: DSA101 to DSA109, DSA119, DSA125.
        StageOutputError: DSA115.

    Source: sglang 0.5.15 `cp_split_and_rebuild_position` (layers/attention/dsa/utils.py), 0.5.23 `shard_positions` of
        the CP strategies; there each layer splits and concatenates, here an index made once per batch is applied.
    """
