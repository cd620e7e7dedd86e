"""Reference of `rebuild_positions`: one gather by the batch's row index."""

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, brand, stage
from dsa_contracts.dsa.aliases import RowIndex, TokenPositions
from dsa_contracts.dsa.dims import Nnz
from dsa_contracts.dsa.states import Global, Local, Sequence
from dsa_contracts.dsa.typevars import L, N
from dsa_cp.numerics.indexed_rows import take_rows


@stage(contracts.rebuild_positions)
def rebuild_positions(
    positions: TokenPositions[Global[Sequence], Nnz],
    rows: RowIndex[Local[L], N],
    batch: CpBatch[L],
) -> TokenPositions[Local[L], N]:
    """See `dsa_contracts.stages.rebuild_positions`."""
    return brand(take_rows(positions, rows))
