"""Positions and rows of `rebuild_positions`, swapped: with one rank they are as many."""

from dsa_contracts import CpBatch
from dsa_contracts.dsa.aliases import RowIndex, TokenPositions
from dsa_contracts.dsa.dims import Nnz, NnzLocal
from dsa_contracts.dsa.states import Global, Local, Sequence
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import rebuild_positions


def layer(
    positions: TokenPositions[Global[Sequence], Nnz],
    rows: RowIndex[Local[Zigzag], NnzLocal],
    batch: CpBatch[Zigzag],
) -> None:
    rebuild_positions(positions, rows, batch)
    rebuild_positions(rows, positions, batch)  # refused
