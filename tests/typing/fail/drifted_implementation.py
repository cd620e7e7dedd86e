"""An implementation that takes padded rows alone, under a contract that takes rows with and without padding."""

import torch

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, Ten, brand, stage
from dsa_contracts.dims import Nnz, NnzPadded
from dsa_contracts.states import I64, Contiguous, Global, Local, Plain, Sequence
from dsa_contracts.typevars import L


@stage(contracts.rebuild_positions)  # refused
def rebuild_positions(
    positions: Ten[Global[Sequence], Plain, I64, Contiguous, Nnz],
    rows: Ten[Local[L], Plain, I64, Contiguous, NnzPadded],
    batch: CpBatch[L],
) -> Ten[Local[L], Plain, I64, Contiguous, NnzPadded]:
    return brand(torch.where(rows >= 0, positions[rows.clamp(min=0)], 0))
