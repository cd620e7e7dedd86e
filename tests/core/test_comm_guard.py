"""The control plane that contracts use: a group as its ranks see it, and how one rank's failure reaches the others."""

from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import Comm, CpBatch, guard
from dsa_contracts.core.comm import describe_values
from dsa_contracts.core.errors import RankError
from dsa_contracts.dsa.codes import BatchError
from dsa_contracts.dsa.row_formats import bf16_format
from dsa_contracts.dsa.states import Bf16Row, Packed, Raw, Rotated
from dsa_cp.comm import SimulatedGroup, run_ranks
from dsa_cp.stages import all_gather_kv
from tests.core.toys import batches_of, local


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
    assert isinstance(SimulatedGroup(1).comm(0), Comm)
    assert not isinstance(torch.zeros(1), Comm)


def test_a_body_that_ends_well_says_that_it_is_done() -> None:
    comm = OneRank()
    with guard(comm):
        comm.said.append("body")
    assert comm.said == ["body", "done"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (BatchError("lengths"), "BatchError DSA301: lengths"),
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


FORMAT = bf16_format(2, 2)


def packed(batch: CpBatch[Any], width: int = 8, state: object = Rotated) -> Any:
    mark: Any = Packed
    return local(torch.ones(batch.nnz_local, width, dtype=torch.uint8), mark[Bf16Row, state], batch)


def test_ranks_compare_stage_layer_rows_and_batch_before_the_payload_moves() -> None:
    comm: Any = OneRank()
    batch = batches_of(cp_size=1)[0].at_layer(5)
    all_gather_kv(packed(batch), FORMAT, batch, comm)
    assert comm.said == [
        "agree all_gather_kv layer=5 u8[rows, 8] bf16 zigzag cp_size=1 nnz_padded=7 extend=[7] prefix=[0] plan=-",
        "all_gather",
    ]


def test_a_collective_stage_that_is_refused_tells_the_other_ranks() -> None:
    comm: Any = OneRank()
    batch = batches_of(cp_size=1)[0]
    with pytest.raises(RankError) as raised:
        all_gather_kv(packed(batch, 9), FORMAT, batch, comm)
    assert str(raised.value.__cause__).startswith("StageInputError DSA110: all_gather_kv: kv is 9 bytes wide")
    assert comm.said == [f"fail {raised.value.__cause__}"]


def test_a_rank_that_is_refused_before_the_collective_ends_all_ranks_with_the_same_text() -> None:
    batches, texts = batches_of(), {}

    def body(comm: Comm) -> None:
        batch = batches[comm.rank]
        kv = packed(batch, 9 if comm.rank else 8)
        try:
            all_gather_kv(kv, FORMAT, batch, comm)
        except RankError as error:
            texts[comm.rank] = str(error)
            raise

    with pytest.raises(RankError):
        run_ranks(2, body)
    assert texts[0] == texts[1]
    assert texts[0].startswith(
        "RankError DSA502: rank 1 of 2 failed before collective 1\n  rank 0    all_gather_kv layer=None"
    )
    assert "StageInputError DSA110: all_gather_kv: kv is 9 bytes wide, a row of bf16 has 8" in texts[0]


def test_ranks_that_came_with_different_layers_are_told_each_others() -> None:
    batches = batches_of()

    def body(comm: Comm) -> None:
        batch = batches[comm.rank].at_layer(comm.rank)
        all_gather_kv(packed(batch, 8, Raw), FORMAT, batch, comm)

    with pytest.raises(RankError) as error:
        run_ranks(2, body)
    facts = "u8[rows, 8] bf16 zigzag cp_size=2 nnz_padded=4 extend=[7] prefix=[0] plan=-"
    assert str(error.value) == (
        "RankError DSA501: ranks 0, 1 of 2 came to collective 1 with different facts\n"
        f"  rank 0    all_gather_kv layer=0 {facts}\n"
        f"  rank 1    all_gather_kv layer=1 {facts}"
    )
