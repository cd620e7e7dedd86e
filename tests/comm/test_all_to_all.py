"""The exchange of rows between ranks, simulated and over real gloo processes: order, counts, memory, refusals."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsa_contracts.core.comm import Comm, Exchange
from dsa_cp.comm import SimulatedGroup, run_ranks
from dsa_cp.comm.exchange import counts_fault, difference
from dsa_cp.comm.process import run_processes
from tests.support import rank_programs as targets

UNEVEN = [[0, 2, 1], [3, 0, 0], [1, 0, 2]]
"""Rows of each rank for each: rank 1 sends to rank 0 alone, and rank 1 takes none of its own."""

TAKEN = [[10, 10, 10, 20], [1, 1], [2, 22, 22]]


def first_column(taken: list[torch.Tensor]) -> list[list[int]]:
    return [rows[:, 0].tolist() for rows in taken]


def test_each_rank_takes_its_rows_sender_after_sender() -> None:
    assert first_column(run_ranks(3, partial(targets.exchange, counts=UNEVEN))) == TAKEN


@pytest.mark.process
def test_processes_take_their_rows_sender_after_sender() -> None:
    assert first_column(run_processes(3, targets.exchange, UNEVEN)) == TAKEN


@pytest.mark.process
@pytest.mark.parametrize("counts", [[[0, 0], [0, 0]], [[1, 0], [0, 4]], [[0, 5], [0, 0]]])
def test_two_processes_exchange_what_two_simulated_ranks_do(counts: list[list[int]]) -> None:
    simulated = run_ranks(2, partial(targets.exchange, counts=counts))
    real = run_processes(2, targets.exchange, counts)

    assert [rows.shape for rows in real] == [rows.shape for rows in simulated]
    assert all(torch.equal(got, want) for got, want in zip(real, simulated, strict=True))


def matrices(size: int) -> st.SearchStrategy[list[list[int]]]:
    return st.lists(st.lists(st.integers(0, 3), min_size=size, max_size=size), min_size=size, max_size=size)


@settings(max_examples=30)
@given(st.integers(1, 4).flatmap(matrices))
def test_rows_come_back_as_they_were_sent(counts: list[list[int]]) -> None:
    found = run_ranks(len(counts), partial(targets.exchange_twice, counts=counts))

    for rank, (kept, back) in enumerate(found):
        want = [10 * rank + peer for peer, count in enumerate(counts[rank]) for _ in range(count)]
        assert kept[:, 0].tolist() == want
        assert torch.equal(kept, back)


@pytest.mark.parametrize("body", targets.EXCHANGES_REFUSED, ids=lambda body: body.__name__)
def test_ranks_whose_rows_or_counts_do_not_fit_raise_one_text(body: Callable[[Exchange], None]) -> None:
    said: Any = targets.error_of
    assert run_ranks(2, partial(said, body=body)) == [targets.EXCHANGES_REFUSED[body]] * 2


@pytest.mark.process
@pytest.mark.parametrize("body", targets.EXCHANGES_REFUSED, ids=lambda body: body.__name__)
def test_processes_whose_rows_or_counts_do_not_fit_raise_the_same_text(body: Callable[[Exchange], None]) -> None:
    said: Any = targets.error_of
    assert run_processes(2, said, body) == [targets.EXCHANGES_REFUSED[body]] * 2


def test_a_count_for_each_rank_and_none_below_zero() -> None:
    assert counts_fault(2, 3, [1, 2], [0, 0]) is None
    assert counts_fault(2, 3, [3], [0, 0]) == "send has 1 counts, and the group 2 ranks"
    assert counts_fault(2, 3, [1, 2], [0, 0, 0]) == "take has 3 counts, and the group 2 ranks"
    assert counts_fault(2, 3, [4, -1], [0, 0]) == "send is [4, -1]; a count is not below 0"


def test_a_text_that_was_cut_and_a_round_that_is_not_complete_are_not_compared() -> None:
    one, other = "all_to_all uint8[3, 4] sends 1, 2 takes 1, 2", "all_to_all uint8[3, 4] sends 2, 1 takes 1, 1"
    assert difference([one]) is None
    assert difference([one, "all_to_all uint8[3, 4] sends 2, 1 ta..."]) is None
    assert difference([one, other]) is not None


def test_a_group_that_exchanges_is_a_comm_and_is_told_from_one_that_does_not() -> None:
    class Gathers:
        size, rank = 1, 0
        all_gather = agree = fail = done = print

    comm = SimulatedGroup(1).comm(0)
    assert isinstance(comm, Exchange)
    assert isinstance(comm, Comm)
    assert isinstance(Gathers(), Comm)
    assert not isinstance(Gathers(), Exchange)
