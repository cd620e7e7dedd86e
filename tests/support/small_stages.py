"""Small batches, and rows of them as some stage before would have handed them on."""

from typing import Any

import torch
from torch import Tensor

from dsa_contracts import CpBatch, Layout, declare
from dsa_contracts.dsa.states import Global, Local, Positions, Raw
from dsa_contracts.dsa.typevars import L
from dsa_cp.layouts import Zigzag, build_batches

ROWS, WIDTH = 3, 2
"""This rank's rows in `batch_of`, and the width of the toy rows."""


def batches_of(layout: Layout | None = None, cp_size: int = 2, *lens: int, **options: Any) -> tuple[CpBatch[Any], ...]:
    """By default seven tokens on two ranks: rank 0 holds 0 1 6, rank 1 holds 2 3 4 5, padded to four rows each."""
    return build_batches(layout or Zigzag(), cp_size, lens or (7,), **options)


def batch_of(cp_rank: int = 0, **options: Any) -> CpBatch[Any]:
    """Rank 0 has nnz_local 3, nnz_padded 4, nnz 7, nnz_gathered 8: four counts that differ."""
    return batches_of(**options)[cp_rank]


def rows_of(count: int = ROWS, width: int = WIDTH) -> Tensor:
    return torch.ones(count, width, dtype=torch.bfloat16)


def raw(tensor: Tensor, batch: CpBatch[L]) -> Any:
    return local(tensor, Raw, batch)


def local(tensor: Tensor, state: object, batch: CpBatch[L]) -> Any:
    """Rows of this rank as some stage before would have handed them on."""
    return declare(tensor, Local[L], state, batch, "test")


def global_rows(tensor: Tensor, order: object, state: object, batch: CpBatch[Any]) -> Any:
    """Rows of all ranks as some stage before would have handed them on."""
    rows: Any = Global
    return declare(tensor, rows[order], state, batch, "test")


def args_of(batch: CpBatch[Any], **changes: Any) -> tuple[Any, ...]:
    """Legal arguments of `turn` on rank 0, branded, with some of them changed."""
    positions = local(batch.positions[batch.local_rows], Positions, batch)
    args = {"x": raw(rows_of(batch.nnz_local), batch), "positions": positions, "scale": 2.0, "batch": batch}
    return tuple((args | changes).values())
