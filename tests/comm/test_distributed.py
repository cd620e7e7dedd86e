"""Ranks as real processes over gloo: order, how they fail together, and that none is left behind."""

import multiprocessing
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from dsa_contracts.core.comm import Comm
from dsa_contracts.core.errors import ArgumentError, RankError, StageInputError
from dsa_contracts.dsa.codes import BatchError
from dsa_cp.comm.distributed import LOOPBACK, connect
from dsa_cp.comm.process import run_processes
from tests.support import rank_programs as targets


def processes_left(pids: list[int], patience_s: float = 2.0) -> list[int]:
    """Return those of some processes that still exist, as zombies or running, after a while."""
    deadline = time.monotonic() + patience_s
    left = pids
    while left and time.monotonic() < deadline:
        left = [pid for pid in left if Path(f"/proc/{pid}").exists()]
        time.sleep(0.01)
    return left


@pytest.mark.process
@pytest.mark.parametrize(("cp_size", "rows"), [(4, 3), (2, 0)])
def test_rows_come_in_rank_order(cp_size: int, rows: int) -> None:
    expected = torch.cat([targets.rows_of(rank, rows) for rank in range(cp_size)])

    for gathered in run_processes(cp_size, targets.gather_own_rank, rows):
        assert gathered.shape == (cp_size * rows, 4)
        assert torch.equal(gathered, expected)


@pytest.mark.process
def test_every_rank_gets_new_memory() -> None:
    for gathered, shares in run_processes(2, targets.gather_then_change_own_rows):
        assert gathered[::3, 0].tolist() == [1, 2]
        assert not shares


@pytest.mark.process
@pytest.mark.parametrize(
    ("cp_size", "body", "message"),
    [
        (4, targets.rank_two_raises_in_a_stage, targets.STAGE_FAILED),
        (3, targets.all_ranks_raise, targets.ALL_FAILED),
        (3, targets.rank_one_ends_early, targets.ENDED),
        (3, targets.rank_one_has_another_dtype, targets.OTHER_DTYPE),
        (3, targets.rank_one_has_another_width, targets.OTHER_WIDTH),
        (3, targets.rank_zero_has_one_row_more, targets.UNEVEN_ROWS),
        (4, targets.last_rank_has_another_plan, targets.OTHER_PLAN),
    ],
)
def test_every_rank_raises_the_same_text(cp_size: int, body: Callable[[Comm], None], message: str) -> None:
    results = run_processes(cp_size, targets.error_of, body)

    expected = ["" if message == targets.ENDED and rank == 1 else message for rank in range(cp_size)]
    assert results == expected


@pytest.mark.process
def test_a_rank_that_comes_too_late_raises_the_text_of_those_that_waited() -> None:
    results = run_processes(3, targets.error_of, targets.rank_one_is_late, timeout_s=0.6)

    assert results == [targets.LATE] * 3


@pytest.mark.process
def test_the_parent_raises_the_error_of_the_ranks_and_its_cause() -> None:
    with pytest.raises(RankError) as caught:
        run_processes(4, targets.rank_two_raises_in_a_stage)

    assert str(caught.value) == targets.STAGE_FAILED
    assert isinstance(caught.value.__cause__, StageInputError)
    assert caught.value.__cause__.facts == (("expected", "contiguous"),)


@pytest.mark.process
@pytest.mark.parametrize(("death", "text"), [("exit", "exit code 3"), ("kill", "SIGKILL")])
def test_a_process_that_dies_is_named_by_all_ranks_and_leaves_none_behind(tmp_path: Path, death: str, text: str) -> None:
    with pytest.raises(RankError) as caught:
        run_processes(4, targets.rank_two_dies, str(tmp_path), death)

    assert str(caught.value) == targets.lines(
        "RankError DSA502: rank 2 of 4 died before collective 2",
        "  rank 0    all_gather uint8[3, 4]",
        "  rank 1    all_gather uint8[3, 4]",
        f"  rank 2    died: {text}",
        "  rank 3    all_gather uint8[3, 4]",
    )
    pids = [int(path.name) for path in tmp_path.iterdir()]
    assert len(pids) == 4
    assert processes_left(pids) == []
    assert multiprocessing.active_children() == []


@pytest.mark.process
def test_a_process_that_dies_after_the_last_collective_is_named_by_the_parent() -> None:
    with pytest.raises(RankError) as caught:
        run_processes(2, targets.die_alone)

    assert str(caught.value) == targets.lines(
        "RankError DSA502: rank 1 of 2 died",
        "  rank 0    returned",
        "  rank 1    died: exit code 4",
    )


@pytest.mark.process
def test_a_process_that_does_not_end_is_ended_at_the_deadline(tmp_path: Path) -> None:
    with pytest.raises(RankError) as caught:
        run_processes(2, targets.rank_one_never_ends, str(tmp_path), deadline_s=2)

    assert str(caught.value) == targets.lines(
        "RankError DSA503: rank 1 of 2 did not end within 2 s",
        "  rank 0    returned",
        "  rank 1    still ran, was ended",
    )
    pids = [int(path.name) for path in tmp_path.iterdir()]
    assert len(pids) == 2
    assert processes_left(pids) == []


@pytest.mark.process
def test_processes_run_on_one_thread_without_autograd_and_see_the_environment_as_it_is_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for value in ("one", "two"):
        monkeypatch.setenv("DSA_CP_TEST", value)
        assert run_processes(1, targets.environment_of, "DSA_CP_TEST") == [(value, 1, False)]


@pytest.mark.process
def test_no_process_is_left_after_a_run_that_went_well() -> None:
    pids = run_processes(2, targets.pid_of)

    assert len({*pids, os.getpid()}) == 3
    assert processes_left(pids) == []


@pytest.mark.process
def test_a_result_that_does_not_pickle_is_an_error_of_its_rank() -> None:
    with pytest.raises(RankError, match="rank 0 of 1 failed before collective 1"):
        run_processes(1, targets.return_a_function)


@pytest.mark.process
def test_without_a_check_of_payloads_a_lost_rank_is_still_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSA_CONTRACTS", "production")

    with pytest.raises(RankError) as caught:
        run_processes(2, targets.lose_the_payload, timeout_s=1.0)

    assert caught.value.facts[1] == ("rank 1", "failed: ValueError: no such kernel")
    assert repr(caught.value.__cause__) == "ValueError('no such kernel')"


def test_a_target_that_does_not_pickle_is_refused() -> None:
    with pytest.raises(ArgumentError, match="DSA602: run_processes: the target or its arguments do not pickle"):
        run_processes(2, lambda comm: None)
    with pytest.raises(BatchError, match="DSA302"):
        run_processes(0, targets.pid_of)


def test_one_rank_connects_to_its_own_store_and_closes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        port = listener.getsockname()[1]

    comm = connect(0, 1, port)
    try:
        assert isinstance(comm, Comm)
        assert (comm.size, comm.rank) == (1, 0)
        comm.agree("x")
        gathered: Tensor = comm.all_gather(targets.rows_of(0))
        assert torch.equal(gathered, targets.rows_of(0))
    finally:
        comm.close()
    assert not torch.distributed.is_initialized()
