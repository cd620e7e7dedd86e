"""Bodies that run as ranks of either group, and the errors that they end with; child processes import this module."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from dsa_contracts.core.comm import Comm, Exchange, guard
from dsa_contracts.core.errors import RankError, StageInputError


def lines(*parts: str) -> str:
    return "\n".join(parts)


STAGE_FAILED = lines(
    "RankError DSA502: rank 2 of 4 failed before collective 2",
    "  rank 0    all_gather uint8[3, 4]",
    "  rank 1    all_gather uint8[3, 4]",
    "  rank 2    failed: StageInputError DSA104: rope_quantize: k_nope is strided",
    "              expected  contiguous",
    "  rank 3    all_gather uint8[3, 4]",
)
ALL_FAILED = lines(
    "RankError DSA502: ranks 0, 1, 2 of 3 failed before collective 1",
    "  rank 0    failed: StageInputError DSA104: rope_quantize: k_nope is strided",
    "              expected  contiguous",
    "  rank 1    failed, as rank 0",
    "  rank 2    failed, as rank 0",
)
ENDED = lines(
    "RankError DSA502: rank 1 of 3 ended before collective 2",
    "  rank 0    all_gather uint8[3, 4]",
    "  rank 1    ended",
    "  rank 2    all_gather uint8[3, 4]",
)
OTHER_DTYPE = lines(
    "RankError DSA501: rank 1 of 3 came to collective 1 with rows that are not contiguous uint8 [n, width]",
    "  rank 0    all_gather uint8[3, 4]",
    "  rank 1    all_gather float32[3, 4]",
    "  rank 2    all_gather uint8[3, 4]",
)
OTHER_WIDTH = lines(
    "RankError DSA501: ranks 0, 1, 2 of 3 came to collective 1 with different facts",
    "  rank 0    all_gather uint8[3, 4]",
    "  rank 1    all_gather uint8[3, 5]",
    "  rank 2    all_gather uint8[3, 4]",
)
UNEVEN_ROWS = lines(
    "RankError DSA501: ranks 0, 1, 2 of 3 came to collective 1 with different facts",
    "  rank 0    all_gather uint8[4, 4]",
    "  rank 1    all_gather uint8[3, 4]",
    "  rank 2    all_gather uint8[3, 4]",
)
OTHER_PLAN = lines(
    "RankError DSA501: ranks 0, 1, 2, 3 of 4 came to collective 1 with different facts",
    "  rank 0    plan=a",
    "  rank 1    plan=a",
    "  rank 2    plan=a",
    "  rank 3    plan=b",
)
LATE = lines(
    "RankError DSA503: rank 1 of 3 did not come to collective 1 within 0.6 s",
    "  rank 0    x",
    "  rank 1    did not come",
    "  rank 2    x",
)


def rows_of(rank: int, rows: int = 3, width: int = 4) -> Tensor:
    return torch.full((rows, width), rank + 1, dtype=torch.uint8)


def gather_own_rank(comm: Comm, rows: int) -> Tensor:
    return comm.all_gather(rows_of(comm.rank, rows))


def gather_then_change_own_rows(comm: Comm) -> tuple[Tensor, bool]:
    rows = rows_of(comm.rank)
    gathered = comm.all_gather(rows)
    rows.zero_()
    return gathered, rows.data_ptr() == gathered.data_ptr()


def rank_two_raises_in_a_stage(comm: Comm) -> None:
    comm.agree("x")
    if comm.rank == 2:
        raise StageInputError("rope_quantize: k_nope is strided", code="DSA104", facts=[("expected", "contiguous")])
    comm.all_gather(rows_of(comm.rank))


def all_ranks_raise(comm: Comm) -> None:
    raise StageInputError("rope_quantize: k_nope is strided", code="DSA104", facts=[("expected", "contiguous")])


def rank_one_ends_early(comm: Comm) -> None:
    comm.agree("x")
    if comm.rank != 1:
        comm.all_gather(rows_of(comm.rank))


def rank_one_has_another_dtype(comm: Comm) -> None:
    rows = rows_of(comm.rank)
    comm.all_gather(rows.float() if comm.rank == 1 else rows)


def rank_one_has_another_width(comm: Comm) -> None:
    comm.all_gather(rows_of(comm.rank, width=5 if comm.rank == 1 else 4))


def rank_zero_has_one_row_more(comm: Comm) -> None:
    comm.all_gather(rows_of(comm.rank, rows=4 if comm.rank == 0 else 3))


def last_rank_has_another_plan(comm: Comm) -> None:
    comm.agree("plan=b" if comm.rank == comm.size - 1 else "plan=a")


def rank_one_is_late(comm: Comm) -> None:
    if comm.rank == 1:
        time.sleep(1.2)
    comm.agree("x")


def error_of(comm: Comm, body: Callable[[Comm], None]) -> str:
    """Return the text of the error that this rank raises; a rank that waited for nothing says which rank did not come."""
    try:
        with guard(comm):
            body(comm)
    except RankError as error:
        return str(error)
    return ""


def second_error_of(comm: Comm, body: Callable[[Comm], None]) -> tuple[str, str, str]:
    """Return the texts of the errors of a body and of two collectives after it."""
    return error_of(comm, body), error_of(comm, last_rank_has_another_plan), str(comm.fail("again"))


def rank_two_dies(comm: Comm, folder: str, death: str) -> None:
    Path(folder, str(os.getpid())).touch()
    comm.agree("x")
    if comm.rank == 2 and death == "exit":
        os._exit(3)
    if comm.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.all_gather(rows_of(comm.rank))


def rank_one_never_ends(comm: Comm, folder: str) -> None:
    Path(folder, str(os.getpid())).touch()
    while comm.rank == 1:
        time.sleep(0.01)


def environment_of(comm: Comm, name: str) -> tuple[str | None, int, bool]:
    return os.environ.get(name), torch.get_num_threads(), torch.is_grad_enabled()


def pid_of(comm: Comm) -> int:
    return os.getpid()


def return_a_function(comm: Comm) -> Callable[[], None]:
    return lambda: None


def lose_the_payload(comm: Comm) -> None:
    """In production no rank says what it brings; a rank that is gone shows only in the transport."""
    if comm.rank == 1:
        raise ValueError("no such kernel")
    comm.all_gather(rows_of(comm.rank))


def die_alone(comm: Comm) -> None:
    comm.agree("x")
    if comm.rank == 1:
        os._exit(4)


def exchange(comm: Exchange, counts: list[list[int]], width: int = 4) -> Tensor:
    """Send row values `10 * sender + receiver`, as many as `counts[sender][receiver]` says."""
    send, take = counts[comm.rank], [row[comm.rank] for row in counts]
    values = [10 * comm.rank + peer for peer, count in enumerate(send) for _ in range(count)]
    rows = torch.tensor(values, dtype=torch.uint8)[:, None].expand(-1, width).contiguous()
    return comm.all_to_all(rows, send, take)


def exchange_twice(comm: Exchange, counts: list[list[int]]) -> list[Tensor]:
    """Send rows out and back; the rows that come back are changed by their owner after that."""
    there = exchange(comm, counts)
    back = comm.all_to_all(there, [row[comm.rank] for row in counts], counts[comm.rank])
    kept = back.clone()
    there.zero_()
    return [kept, back]


def rank_one_takes_other_counts(comm: Exchange) -> None:
    send, take = [1, 2], [1, 2]
    if comm.rank == 1:
        send, take = [2, 1], [1, 1]
    comm.all_to_all(rows_of(comm.rank, rows=3), send, take)


def equal_counts_that_do_not_fit(comm: Exchange) -> None:
    comm.all_to_all(rows_of(comm.rank, rows=3), [1, 2], [1, 2])


def rank_one_sends_what_it_has_not(comm: Exchange) -> None:
    comm.all_to_all(rows_of(comm.rank, rows=2), [1, 1] if comm.rank == 0 else [1, 2], [1, 1])


def rank_one_exchanges_wider_rows(comm: Exchange) -> None:
    comm.all_to_all(rows_of(comm.rank, rows=2, width=4 + comm.rank), [1, 1], [1, 1])


def rank_one_exchanges_floats(comm: Exchange) -> None:
    rows = rows_of(comm.rank, rows=2)
    comm.all_to_all(rows.float() if comm.rank == 1 else rows, [1, 1], [1, 1])


def rank_one_gathers_instead(comm: Exchange) -> None:
    if comm.rank == 1:
        comm.all_gather(rows_of(1, rows=2))
    else:
        comm.all_to_all(rows_of(0, rows=2), [1, 1], [1, 1])


EXCHANGES_REFUSED: dict[Callable[[Exchange], None], str] = {
    rank_one_takes_other_counts: lines(
        "RankError DSA501: ranks 0, 1 of 2 came to collective 1 with counts that do not fit: "
        "rank 0 sends 2 rows to rank 1, which takes 1",
        "  rank 0    all_to_all uint8[3, 4] sends 1, 2 takes 1, 2",
        "  rank 1    all_to_all uint8[3, 4] sends 2, 1 takes 1, 1",
    ),
    equal_counts_that_do_not_fit: lines(
        "RankError DSA501: ranks 0, 1 of 2 came to collective 1 with counts that do not fit: "
        "rank 0 sends 2 rows to rank 1, which takes 1",
        "  rank 0    all_to_all uint8[3, 4] sends 1, 2 takes 1, 2",
        "  rank 1    all_to_all uint8[3, 4] sends 1, 2 takes 1, 2",
    ),
    rank_one_sends_what_it_has_not: lines(
        "RankError DSA502: rank 1 of 2 failed before collective 1",
        "  rank 0    all_to_all uint8[2, 4] sends 1, 1 takes 1, 1",
        "  rank 1    failed: ArgumentError DSA602: all_to_all: send is [1, 2], 3 rows, and 2 rows were given",
    ),
    rank_one_exchanges_wider_rows: lines(
        "RankError DSA501: ranks 0, 1 of 2 came to collective 1 with different facts",
        "  rank 0    all_to_all uint8[2, 4] sends 1, 1 takes 1, 1",
        "  rank 1    all_to_all uint8[2, 5] sends 1, 1 takes 1, 1",
    ),
    rank_one_exchanges_floats: lines(
        "RankError DSA501: rank 1 of 2 came to collective 1 with rows that are not contiguous uint8 [n, width]",
        "  rank 0    all_to_all uint8[2, 4] sends 1, 1 takes 1, 1",
        "  rank 1    all_to_all float32[2, 4] sends 1, 1 takes 1, 1",
    ),
    rank_one_gathers_instead: lines(
        "RankError DSA501: ranks 0, 1 of 2 came to collective 1 with different facts",
        "  rank 0    all_to_all uint8[2, 4] sends 1, 1 takes 1, 1",
        "  rank 1    all_gather uint8[2, 4]",
    ),
}
