"""The control plane that contracts use: a group as its ranks see it, and how one rank's failure reaches the others."""

from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts.core.comm import Comm, describe_values, guard
from dsa_contracts.core.errors import ArgumentError, RankError
from dsa_contracts.core.marks import BF16
from tests.support.toy import Box, Boxed, Crew, SmallBox, Warm, crew_of, gathered, mine

BOXED: Any = Boxed


class OneRank:
    """A group of one rank that writes down what is asked of it."""

    size, rank = 1, 0

    def __init__(self) -> None:
        self.said: list[str] = []

    def all_gather(self, rows: Tensor) -> Tensor:
        self.said.append("all_gather")
        return rows.clone()

    def agree(self, fingerprint: str) -> None:
        self.said.append(f"agree {fingerprint}")

    def fail(self, reason: str) -> RankError:
        self.said.append(f"fail {reason}")
        return RankError("rank 0 failed", code="DSA502")

    def done(self) -> None:
        self.said.append("done")


def test_a_group_is_known_by_what_it_can_do() -> None:
    assert isinstance(OneRank(), Comm)
    assert not isinstance(torch.zeros(1), Comm)


def test_a_body_that_ends_well_says_that_it_is_done() -> None:
    comm = OneRank()
    with guard(comm):
        comm.said.append("body")
    assert comm.said == ["body", "done"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ArgumentError("lengths"), "ArgumentError DSA602: lengths"),
        (ValueError("what happened"), "ValueError: what happened"),
        (KeyboardInterrupt(), "KeyboardInterrupt: "),
        (SystemExit(3), "SystemExit: 3"),
    ],
)
def test_a_body_that_fails_tells_all_ranks_why_and_keeps_the_cause(error: BaseException, reason: str) -> None:
    comm = OneRank()
    with pytest.raises(RankError) as raised, guard(comm):
        raise error
    assert comm.said == [f"fail {reason}", "done"]
    assert raised.value.__cause__ is error


def test_an_error_that_all_ranks_have_already_is_not_told_again() -> None:
    comm, error = OneRank(), RankError("ranks differ")
    with pytest.raises(RankError) as raised, guard(comm):
        raise error
    assert raised.value is error
    assert comm.said == ["done"]


def test_every_ranks_value_is_named_in_rank_order() -> None:
    error = describe_values("ranks differ", {1: "b", 0: "a", 10: "c"}, "DSA501")
    assert str(error) == "RankError DSA501: ranks differ\n  rank 0    a\n  rank 1    b\n  rank 10   c"


BOX = Box(SmallBox, BF16)


def in_boxes(crew: Crew[Any], dims: int = 2) -> Any:
    return mine(torch.ones(len(crew.mine), *[8] * (dims - 1), dtype=torch.uint8), BOXED[SmallBox, Warm], crew)


def test_ranks_compare_stage_layer_rows_and_scope_before_the_payload_moves() -> None:
    comm: Any = OneRank()
    crew = crew_of(runners=1).at_layer(5)
    gathered(in_boxes(crew), BOX, crew, comm)
    assert comm.said == ["agree gather layer=5 u8[rows, 8] SmallBox turns runners=1 total=7", "all_gather"]


def test_a_collective_stage_that_is_refused_tells_the_other_ranks() -> None:
    comm: Any = OneRank()
    crew = crew_of(runners=1)
    with pytest.raises(RankError) as raised:
        gathered(in_boxes(crew, 3), BOX, crew, comm)
    assert str(raised.value.__cause__).startswith("StageInputError DSA109: gather: boxes has 3 dims, not 2\n")
    assert comm.said == [f"fail {raised.value.__cause__}"]
