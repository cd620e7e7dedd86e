"""An implementation that takes padded rows alone, under a contract that takes rows with and without padding."""

import torch

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, brand, stage
from dsa_contracts.dsa.aliases import RowIndex, TokenPositions
from dsa_contracts.dsa.dims import Nnz, NnzPadded
from dsa_contracts.dsa.states import Global, Local, Sequence
from dsa_contracts.dsa.typevars import L


@stage(contracts.rebuild_positions)  # refused
def rebuild_positions(
    positions: TokenPositions[Global[Sequence], Nnz],
    rows: RowIndex[Local[L], NnzPadded],
    batch: CpBatch[L],
) -> TokenPositions[Local[L], NnzPadded]:
    return brand(torch.where(rows >= 0, positions[rows.clamp(min=0)], 0))
