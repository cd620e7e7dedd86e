"""A context-parallel group simulated in one process, one thread a rank.

The same bodies run here and over real processes. What a real group would do with bytes of another shape (hang, abort, or
give wrong rows), this one refuses with the shapes of all ranks.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from dsa_contracts.core.comm import Exchange, guard
from dsa_contracts.dsa.batch_facts import check_ranks
from dsa_cp.comm.rounds import KEPT_ROUNDS, ControlPlane, Rounds
from dsa_cp.comm.verdict import Entry, Kind, exchange_entry, payload_entry

T = TypeVar("T")


class Payload(NamedTuple):
    """What a rank brings to a collective: its rows, and in an exchange how many of them each rank gets."""

    rows: Tensor
    counts: tuple[int, ...] = ()

    def for_rank(self, rank: int) -> Tensor:
        """Return the rows that a rank gets, a view."""
        start = sum(self.counts[:rank])
        return self.rows[start : start + self.counts[rank]]


class SimulatedGroup:
    """The shared state of the ranks of one simulated group: a board of entries, and the rows that are being gathered.

    A rank whose `comm` nobody has asked for is not running: others do not wait for it once a round has failed.

    Args:
        cp_size: ranks of the group, at least 1.
        timeout_s: how long a collective waits for its ranks.

    Raises:
        BatchError: DSA302, a cp_size below 1, or a rank that is not in the group.
        ArgumentError: DSA602, a timeout that is not above 0.
    """

    def __init__(self, cp_size: int, timeout_s: float = 5.0) -> None:
        check_ranks(cp_size, 0)
        self.size = cp_size
        self.timeout_s = timeout_s
        self._changed = threading.Condition()
        self._rounds: dict[int, dict[int, Entry]] = {}
        self._payloads: dict[int, dict[int, Payload]] = {}
        self._copied: dict[int, tuple[list[Payload], set[int]]] = {}
        self._running: set[int] = set()
        self._is_aborted = False

    def comm(self, rank: int) -> "SimulatedComm":
        """Return the group as a rank sees it; once for each rank, before any rank starts."""
        check_ranks(self.size, rank)
        self._running.add(rank)
        return SimulatedComm(self, rank)

    def abort(self) -> None:
        """Make every collective that waits, and every later one, raise RankError DSA502."""
        with self._changed:
            self._is_aborted = True
            for places in self._rounds.values():
                self._fill(places)
            self._changed.notify_all()

    def claim(self, number: int, rank: int, entry: Entry) -> Entry:
        """Put an entry in an open place, and return the entry that stands there."""
        with self._changed:
            self._rounds.pop(number - KEPT_ROUNDS, None)
            places = self._rounds.setdefault(number, {})
            if self._is_aborted:
                self._fill(places)
            standing = places.setdefault(rank, entry)
            self._changed.notify_all()
            return standing

    def read(self, number: int) -> Sequence[Entry | None]:
        """Return the entries of a round in rank order, None for places still open."""
        with self._changed:
            places = self._rounds[number]
            return [places.get(rank) for rank in range(self.size)]

    def wait(self, number: int, seen: Sequence[Entry | None], waited_s: float, at_most_s: float) -> None:
        """Return once a round differs from what was seen, at the latest after `at_most_s`."""
        with self._changed:
            self._changed.wait_for(lambda: list(self.read(number)) != list(seen), at_most_s)

    def is_expected(self, rank: int) -> bool:
        """Whether somebody has asked for the comm of a rank."""
        return rank in self._running

    def bring(self, number: int, rank: int, payload: "Payload") -> None:
        """Leave what a rank brings to a round; its rows are only read while that rank waits."""
        with self._changed:
            self._payloads.setdefault(number, {})[rank] = payload

    def take(self, number: int, rank: int) -> list["Payload"]:
        """Return what all ranks brought to a round that has succeeded, in rank order, for reading only."""
        with self._changed:
            if number not in self._copied:
                # The first rank to come here copies the rows, while no rank has left the round and can change its own.
                brought = self._payloads.pop(number)
                copies = [Payload(brought[peer].rows.clone(), brought[peer].counts) for peer in range(self.size)]
                self._copied[number] = copies, set()
            copies, takers = self._copied[number]
            takers.add(rank)
            if len(takers) == self.size:
                del self._copied[number]
        return copies

    def _fill(self, places: dict[int, Entry]) -> None:
        for rank in range(self.size):
            places.setdefault(rank, Entry(Kind.FAILED, "the group was aborted"))


class SimulatedComm(ControlPlane):
    """A simulated group as one of its ranks sees it; see `dsa_contracts.core.comm.Exchange`."""

    def __init__(self, group: SimulatedGroup, cp_rank: int) -> None:
        self._group = group
        self._rank = cp_rank
        self._rounds = Rounds(group, group.size, cp_rank, group.timeout_s)

    @property
    def size(self) -> int:
        """Ranks of the group."""
        return self._group.size

    @property
    def rank(self) -> int:
        """This rank."""
        return self._rank

    @property
    def is_culprit(self) -> bool:
        """Whether the group's error has the reason that this rank gave."""
        return self._rounds.is_culprit

    def all_gather(self, rows: Tensor) -> Tensor:
        """Gather the same number of rows from every rank.

        Args:
            rows: uint8 [n, width], contiguous; n and width the same on every rank.

        Returns:
            uint8 [cp_size * n, width], new memory on every rank, in rank-major order.

        Raises:
            RankError: DSA501 (rows of another dtype, shape or strides, on any rank), DSA502, DSA503.
        """
        number = self._rounds.next_number
        self._group.bring(number, self._rank, Payload(rows))
        self._rounds.come(payload_entry(rows))
        return torch.cat([payload.rows for payload in self._group.take(number, self._rank)])

    def all_to_all(self, rows: Tensor, send: Sequence[int], take: Sequence[int]) -> Tensor:
        """Send each rank its rows and take those that each rank sends here; see `Exchange.all_to_all`.

        Args:
            rows: uint8 [n, width], contiguous, in the order of the ranks that get them.
            send: rows for each rank.
            take: rows from each rank.

        Returns:
            uint8 [sum(take), width], new memory, sender after sender.

        Raises:
            RankError: DSA501 (rows of another dtype or width, counts that do not fit), DSA502, DSA503.
        """
        number = self._rounds.next_number
        self._group.bring(number, self._rank, Payload(rows, tuple(send)))
        self._rounds.come(exchange_entry(self.size, rows, send, take))
        return torch.cat([payload.for_rank(self._rank) for payload in self._group.take(number, self._rank)])


class _Rank(Generic[T]):
    """One rank's run of a body: what it returned, or what it raised."""

    def __init__(self, comm: SimulatedComm, body: Callable[[Exchange], T]) -> None:
        self.comm = comm
        self.body = body
        self.results: list[T] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        """Run the body without autograd, which is a setting of the thread, and keep what comes of it."""
        try:
            with torch.no_grad(), guard(self.comm):
                self.results.append(self.body(self.comm))
        except BaseException as error:  # noqa: BLE001 - raised again by run_ranks, in the caller's thread
            self.error = error


def run_ranks(cp_size: int, body: Callable[[Exchange], T], *, timeout_s: float = 5.0) -> list[T]:
    """Run `body(comm)` as every rank of a simulated group and return the results in rank order.

    A group of one rank runs in the caller's thread. After an interrupt the other ranks are told to stop at their next
    collective, and are left behind where they do not reach one within `timeout_s`.

    Raises:
        RankError: the one error of the group; its cause is the error of the rank that failed.
        BatchError: DSA302, a cp_size below 1.
    """
    group = SimulatedGroup(cp_size, timeout_s)
    ranks = [_Rank(group.comm(rank), body) for rank in range(cp_size)]
    if cp_size == 1:
        ranks[0].run()
    else:
        _run_threads(group, ranks)
    errors = [rank.error for rank in ranks if rank.error is not None]
    if errors:
        blamed = [rank.error for rank in ranks if rank.error is not None and rank.comm.is_culprit]
        error = (blamed + errors)[0]
        raise error.__cause__ if isinstance(error.__cause__, KeyboardInterrupt) else error
    return [rank.results[0] for rank in ranks]


def _run_threads(group: SimulatedGroup, ranks: Sequence[_Rank[T]]) -> None:
    """Run every rank in its own thread; an interrupt of the caller stops them."""
    threads = [threading.Thread(target=rank.run, name=f"cp_rank {at}", daemon=True) for at, rank in enumerate(ranks)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        group.abort()
        deadline = time.monotonic() + group.timeout_s
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
        raise
