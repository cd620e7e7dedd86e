"""A toy stage with one of each kind of parameter, and small batches to call it with."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import ContractError, CpBatch, Layout, Mode, Ten, brand, contract, contract_of, declare, stage
from dsa_contracts.core.marks import BF16, I64, Contiguous, Plain, UnitLast
from dsa_contracts.core.runtime.call_cache import CallCache
from dsa_contracts.core.runtime.stage import _Checked
from dsa_contracts.dsa.dims import KvLoraRank, Nnz
from dsa_contracts.dsa.states import Global, Local, Positions, Raw, Rotated, Sequence
from dsa_contracts.dsa.typevars import L, N
from dsa_cp.layouts import Zigzag, build_batches

ROWS, WIDTH = 3, 2
"""This rank's rows in `batch_of`, and the width of the toy rows."""


@contract(returns=("turned",), advice=(("DSA107", "turn once"),))
def turn(
    x: Ten[Local[L], Raw, BF16, UnitLast, N, KvLoraRank],
    positions: Ten[Local[L], Plain, I64, Contiguous, N],
    scale: float,
    batch: CpBatch[L],
) -> Ten[Local[L], Rotated, BF16, Contiguous, N, KvLoraRank]:
    """Rows are scaled, and called rotated."""
    raise NotImplementedError


def bare_turn(
    x: Ten[Local[L], Raw, BF16, UnitLast, N, KvLoraRank],
    positions: Ten[Local[L], Plain, I64, Contiguous, N],
    scale: float,
    batch: CpBatch[L],
) -> Ten[Local[L], Rotated, BF16, Contiguous, N, KvLoraRank]:
    """Scale the rows."""
    return brand(x * scale)


@contract(returns=("mean",))
def average(
    x: Ten[Global[Sequence], Plain, BF16, Contiguous, Nnz, KvLoraRank], batch: CpBatch[L]
) -> Ten[Global[Sequence], Plain, BF16, Contiguous, Nnz, KvLoraRank]:
    """Rows of all ranks stay where they are."""
    raise NotImplementedError


def bare_average(
    x: Ten[Global[Sequence], Plain, BF16, Contiguous, Nnz, KvLoraRank], batch: CpBatch[L]
) -> Ten[Global[Sequence], Plain, BF16, Contiguous, Nnz, KvLoraRank]:
    """Copy the rows."""
    return brand(x.clone())


TURN = contract_of(turn).location
AVERAGE = contract_of(average).location


def checked_turn(mode: Mode = Mode.DEVELOPMENT) -> Callable[..., Any]:
    """The toy stage with a memory of its own."""
    return stage(turn, mode=mode)(bare_turn)


def turn_with(body: Callable[..., Any], mode: Mode = Mode.DEVELOPMENT) -> Callable[..., Any]:
    """The toy stage with another body."""

    def other(x: Any, positions: Any, scale: Any, batch: Any) -> Any:
        return body(x, positions, scale, batch)

    return stage(turn, mode=mode)(other)


def checked_average() -> Callable[..., Any]:
    return stage(average, mode=Mode.DEVELOPMENT)(bare_average)


def batches_of(layout: Layout | None = None, cp_size: int = 2, *lens: int, **options: Any) -> tuple[CpBatch[Any], ...]:
    """By default seven tokens on two ranks: rank 0 holds 0 1 6, rank 1 holds 2 3 4 5, padded to four rows each."""
    return build_batches(layout or Zigzag(), cp_size, lens or (7,), **options)


def batch_of(cp_rank: int = 0, **options: Any) -> CpBatch[Any]:
    """Rank 0 has nnz_local 3, nnz_padded 4, nnz 7, nnz_gathered 8: four counts that differ."""
    return batches_of(**options)[cp_rank]


def memory_of(function: Callable[..., Any]) -> CallCache:
    """The memory of a checked stage."""
    found: Any = function
    return next(cell.cell_contents for cell in found.__closure__ if isinstance(cell.cell_contents, _Checked)).checker.cache


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


def refusal(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """The whole message that a call is refused with."""
    with pytest.raises(ContractError) as error:
        function(*args, **kwargs)
    return str(error.value)
