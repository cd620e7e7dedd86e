"""An implementation that takes padded rows alone, under a contract that takes rows with and without padding."""

import torch

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, Ten, brand, stage
from dsa_contracts.core.marks import I64, Contiguous, Plain
from dsa_contracts.dsa.dims import Nnz, NnzPadded
from dsa_contracts.dsa.states import Global, Local, Sequence
from dsa_contracts.dsa.typevars import L


@stage(contracts.rebuild_positions)  # refused
def rebuild_positions(
    positions: Ten[Global[Sequence], Plain, I64, Contiguous, Nnz],
    rows: Ten[Local[L], Plain, I64, Contiguous, NnzPadded],
    batch: CpBatch[L],
) -> Ten[Local[L], Plain, I64, Contiguous, NnzPadded]:
    return brand(torch.where(rows >= 0, positions[rows.clamp(min=0)], 0))
