"""Ranks simulated in threads: order, memory, and how they fail together."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dsa_contracts.core.comm import Comm
from dsa_contracts.core.errors import ArgumentError, RankError, StageInputError
from dsa_contracts.dsa.codes import BatchError
from dsa_cp.comm import SimulatedGroup, run_ranks
from tests.support import rank_programs as targets

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("rows", [0, 1, 3])
@pytest.mark.parametrize("cp_size", [1, 2, 4])
def test_rows_come_in_rank_order(cp_size: int, rows: int) -> None:
    expected = torch.cat([targets.rows_of(rank, rows) for rank in range(cp_size)])

    for gathered in run_ranks(cp_size, partial(targets.gather_own_rank, rows=rows)):
        assert gathered.shape == (cp_size * rows, 4)
        assert torch.equal(gathered, expected)


@settings(max_examples=30)
@given(st.integers(1, 5), st.integers(0, 6), st.integers(0, 9), st.integers(0, 2**32))
def test_gathered_bytes_are_those_of_cat(cp_size: int, rows: int, width: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    payloads = [torch.randint(0, 256, (rows, width), dtype=torch.uint8, generator=generator) for _ in range(cp_size)]

    def gather_twice(comm: Comm) -> tuple[Tensor, Tensor]:
        return comm.all_gather(payloads[comm.rank]), comm.all_gather(payloads[-1 - comm.rank])

    for forward, backward in run_ranks(cp_size, gather_twice):
        assert torch.equal(forward, torch.cat(payloads))
        assert torch.equal(backward, torch.cat(payloads[::-1]))


@pytest.mark.parametrize("cp_size", [1, 4])
def test_every_rank_gets_new_memory(cp_size: int) -> None:
    results = run_ranks(cp_size, targets.gather_then_change_own_rows)

    assert len({gathered.data_ptr() for gathered, _ in results}) == cp_size
    assert not any(shares for _, shares in results)
    for gathered, _ in results:
        assert gathered[::3, 0].tolist() == list(range(1, cp_size + 1))


def test_bodies_run_without_autograd_and_leave_the_caller_with_it() -> None:
    assert run_ranks(2, lambda comm: torch.is_grad_enabled()) == [False, False]
    assert run_ranks(1, lambda comm: torch.is_grad_enabled()) == [False]
    assert torch.is_grad_enabled()


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
    results = run_ranks(cp_size, partial(targets.error_of, body=body))

    expected = ["" if message == targets.ENDED and rank == 1 else message for rank in range(cp_size)]
    assert results == expected
    with pytest.raises(RankError) as caught:
        run_ranks(cp_size, body)
    assert str(caught.value) == message


def test_a_rank_that_comes_too_late_raises_the_text_of_those_that_waited() -> None:
    results = run_ranks(3, partial(targets.error_of, body=targets.rank_one_is_late), timeout_s=0.6)

    assert results == [targets.LATE] * 3


def test_a_group_that_failed_raises_the_same_error_again() -> None:
    results = run_ranks(3, partial(targets.second_error_of, body=targets.rank_one_has_another_width))

    assert results == [(targets.OTHER_WIDTH,) * 3] * 3


def test_the_cause_is_the_error_of_the_rank_that_failed() -> None:
    with pytest.raises(RankError) as caught:
        run_ranks(4, targets.rank_two_raises_in_a_stage)

    assert isinstance(caught.value.__cause__, StageInputError)
    assert caught.value.__cause__.code == "DSA104"


def test_a_rank_that_fails_after_the_group_is_not_the_cause() -> None:
    def rank_zero_gives_up_later(comm: Comm) -> None:
        if comm.rank == 1:
            raise ValueError("first")
        try:
            comm.agree("x")
        except RankError:
            raise KeyError("second") from None

    with pytest.raises(RankError) as caught:
        run_ranks(2, rank_zero_gives_up_later)

    assert repr(caught.value.__cause__) == "ValueError('first')"
    assert str(caught.value) == targets.lines(
        "RankError DSA502: rank 1 of 2 failed before collective 1",
        "  rank 0    x",
        "  rank 1    failed: ValueError: first",
    )


def test_one_rank_fails_alone() -> None:
    with pytest.raises(RankError) as caught:
        run_ranks(1, targets.all_ranks_raise)

    assert str(caught.value).startswith("RankError DSA502: rank 0 of 1 failed before collective 1\n")


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (torch.zeros(3, 4, dtype=torch.float8_e4m3fn), "all_gather float8_e4m3fn[3, 4]"),
        (torch.zeros(12, dtype=torch.uint8), "all_gather uint8[12]"),
        (torch.zeros(4, 3, dtype=torch.uint8).T, "all_gather uint8[3, 4] strides (1, 3)"),
    ],
)
def test_rows_that_are_wrong_on_all_ranks_are_refused(rows: Tensor, text: str) -> None:
    with pytest.raises(RankError) as caught:
        run_ranks(2, lambda comm: comm.all_gather(rows))

    assert str(caught.value) == targets.lines(
        "RankError DSA501: ranks 0, 1 of 2 came to collective 1 with rows that are not contiguous uint8 [n, width]",
        f"  rank 0    {text}",
        f"  rank 1    {text}",
    )


def test_a_gather_does_not_meet_an_agreement() -> None:
    with pytest.raises(RankError) as caught:
        run_ranks(2, lambda comm: comm.agree("") if comm.rank else comm.all_gather(targets.rows_of(0)))

    assert str(caught.value) == targets.lines(
        "RankError DSA501: ranks 0, 1 of 2 came to collective 1 with different facts",
        "  rank 0    all_gather uint8[3, 4]",
        "  rank 1    ''",
    )


def test_a_failing_rank_does_not_wait_for_ranks_that_nobody_runs() -> None:
    comm = SimulatedGroup(2, timeout_s=3600.0).comm(0)
    errors: list[RankError] = []
    rank = threading.Thread(target=lambda: errors.append(comm.fail("no such kernel")), daemon=True)

    rank.start()
    rank.join(60.0)

    (error,) = errors
    assert str(error) == targets.lines(
        "RankError DSA502: rank 0 of 2 failed before collective 1",
        "  rank 0    failed: no such kernel",
        "  rank 1    did not come",
    )


def test_an_interrupt_of_the_caller_ends_the_ranks() -> None:
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("only the main thread is interrupted")
    before = threading.active_count()

    def interrupt(comm: Comm) -> None:
        if comm.rank == 0:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            comm.agree("x")
        time.sleep(0.2)
        comm.agree("y")

    with pytest.raises(KeyboardInterrupt):
        run_ranks(3, interrupt)
    assert threading.active_count() == before


def test_an_interrupt_of_a_group_of_one_stays_an_interrupt() -> None:
    def interrupt(comm: Comm) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_ranks(1, interrupt)


def test_sizes_ranks_and_timeouts_are_checked() -> None:
    with pytest.raises(BatchError, match="DSA302: cp_size is 0"):
        run_ranks(0, targets.pid_of)
    with pytest.raises(BatchError, match="DSA302: cp_rank is 2"):
        SimulatedGroup(2).comm(2)
    with pytest.raises(ArgumentError, match="DSA602: timeout_s is 0"):
        run_ranks(2, targets.pid_of, timeout_s=0)


def test_the_comm_of_a_rank_is_a_comm() -> None:
    comm = SimulatedGroup(3).comm(1)

    assert isinstance(comm, Comm)
    assert (comm.size, comm.rank) == (3, 1)


def test_importing_the_package_does_not_import_the_distributed_group() -> None:
    program = "import sys, dsa_cp.comm; print('dsa_cp.comm.distributed' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
    )

    assert found.stdout == "False\n"
