"""Invariants of what a stage leaves: inert outputs, widths that were asked for, gathered rows; each with a near miss."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dsa_contracts.core.invariant import Call
from dsa_contracts.core.scope import Scope
from dsa_contracts.dsa import invariants
from dsa_cp.comm import run_ranks
from tests.support.small_stages import batch_of, batches_of


def ints(*values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)


def gathered_bytes(row: int, value: int) -> Tensor:
    """Eight gathered rows, of which row 3 is padding."""
    rows = torch.ones(8, 2, dtype=torch.uint8)
    rows[row, 1] = value
    rows[row, 0] = 0
    return rows


def test_padding_rows_of_a_gather_must_be_0_where_padding_was_gathered() -> None:
    invariant, batch = invariants.padding_rows_are_zero("kv"), batch_of()
    assert (invariant.code, invariant.reads_data) == ("DSA120", True)

    def check(kv: Tensor) -> str | None:
        return invariant.check(Call("stage", {"kv": kv, "batch": batch}, batch))

    assert check(gathered_bytes(3, 0)) is None
    assert check(gathered_bytes(3, 0)[:7]) is None
    assert check(gathered_bytes(3, 9)) == "row 3 of kv is padding and not 0"


def test_a_result_must_be_as_wide_as_an_argument_asks_for() -> None:
    invariant = invariants.width_is_argument("topk_indices", "index_topk")
    assert (invariant.code, invariant.reads_data) == ("DSA124", False)
    assert (invariant.subject, invariant.statement) == ("topk_indices", "last dim of topk_indices = index_topk")

    def check(topk: Tensor, width: float) -> str | None:
        return invariant.check(Call("stage", {"topk_indices": topk, "index_topk": width}, Scope()))

    assert check(torch.zeros(3, 2), 2) is None
    assert check(torch.zeros(2, 3), 3) is None
    assert check(torch.zeros(0, 2), 2) is None
    assert check(torch.zeros(3, 2), 3) == "topk_indices is 2 wide, index_topk is 3"
    assert check(torch.zeros(2, 3), 2) == "topk_indices is 3 wide, index_topk is 2"


def outputs(out: float, lse: float, *, topk: int = -1) -> dict[str, Any]:
    return {
        "topk_indices": ints([0, -1], [topk, -1]),
        "out": torch.tensor([[[1.0, 2.0]], [[0.0, out]]]),
        "lse": torch.tensor([[1.0], [lse]]),
    }


def test_a_row_that_attends_to_nothing_must_be_inert_and_one_that_attends_need_not() -> None:
    invariant = invariants.empty_rows_are_inert()
    assert (invariant.code, invariant.reads_data) == ("DSA121", True)
    fault = "row 1 attends to nothing, its out is not 0 or its lse not -inf"
    assert invariant.check(Call("stage", outputs(0.0, float("-inf")), Scope())) is None
    assert invariant.check(Call("stage", outputs(3.0, 2.0, topk=4), Scope())) is None
    for out, lse in ((3.0, float("-inf")), (0.0, 0.0), (float("nan"), float("-inf")), (0.0, float("nan"))):
        assert invariant.check(Call("stage", outputs(out, lse), Scope())) == fault


class Swapped:
    """A group whose ranks come out in another order than their numbers."""

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self.size, self.rank = comm.size, comm.rank

    def all_gather(self, rows: Tensor) -> Tensor:
        return torch.cat(self.comm.all_gather(rows).chunk(self.size)[::-1])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.comm, name)


def test_a_group_that_gathers_in_another_order_is_found() -> None:
    invariant, batches = invariants.gathered_in_rank_order(), batches_of()
    assert (invariant.code, invariant.reads_data) == ("DSA122", True)

    def check(comm: Any, wrap: Callable[[Any], Any]) -> str | None:
        return invariant.check(Call("stage", {"comm": wrap(comm), "batch": batches[comm.rank]}, batches[comm.rank]))

    assert run_ranks(2, lambda comm: check(comm, lambda same: same)) == [None, None]
    found = "gathered row 0 is row 2 of the batch, in rank order it is 0"
    assert run_ranks(2, lambda comm: check(comm, Swapped)) == [found, found]
