"""The control plane of one rank: numbered rounds on a board whose entries are written once.

In a round every rank claims its own place. A rank that runs out of patience claims the places that are still open, as
"did not come"; a rank that comes later finds its place taken and so learns the same verdict. Nothing else is needed
for all ranks to raise the same text: no leader, no second round.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from dsa_contracts.core.errors import ArgumentError, RankError
from dsa_cp.comm.verdict import Arrival, Entry, can_succeed, decide

KEPT_ROUNDS = 4
"""Rounds that a board must keep. Ranks are at most one round apart, two where one is interrupted between two rounds."""


class Board(Protocol):
    """Where the ranks of a group leave their entries."""

    def claim(self, number: int, rank: int, entry: Entry) -> Entry:
        """Put an entry in an open place, and return the entry that now stands there, the first one ever put."""

    def read(self, number: int) -> Sequence[Entry | None]:
        """Return the entries of a round in rank order, None for places still open."""

    def wait(self, number: int, seen: Sequence[Entry | None], waited_s: float, at_most_s: float) -> None:
        """Return once a round may differ from what was seen, at the latest after `at_most_s`.

        Args:
            number: the round.
            seen: its entries at the last read.
            waited_s: how long this rank has waited for it.
            at_most_s: how much longer it may.
        """

    def is_expected(self, rank: int) -> bool:
        """Whether a rank that has not come may still come; a round that cannot succeed waits for no other."""


class Rounds:
    """The rounds of one rank.

    Args:
        board: shared by the ranks of the group.
        cp_size: ranks of the group.
        cp_rank: this rank.
        timeout_s: how long a round waits for its ranks. A round that cannot succeed waits half as long, so that ranks
            which fail together are all named.

    Attributes:
        is_culprit: whether the group's error has the reason that this rank gave to `fail`.
    """

    def __init__(self, board: Board, cp_size: int, cp_rank: int, timeout_s: float) -> None:
        if not timeout_s > 0:
            raise ArgumentError(f"timeout_s is {timeout_s}; it must be above 0")
        self._board = board
        self._size = cp_size
        self._rank = cp_rank
        self._timeout_s = timeout_s
        self._number = 0
        self._verdict: tuple[int, list[Entry]] | None = None
        self.is_culprit = False

    @property
    def next_number(self) -> int:
        """The number of the round that this rank comes to next."""
        return self._number

    def come(self, entry: Entry) -> None:
        """Return once all ranks have come to the next round with the same value.

        Raises:
            RankError: DSA501, DSA502 or DSA503, the same text on every rank; also for every call after it.
        """
        error = self._meet(entry)
        if error is not None:
            raise error

    def fail(self, reason: str, kind: Arrival = Arrival.FAILED) -> RankError:
        """Bring a reason in place of a value, and return the error that every rank raises."""
        error = self._meet(Entry(kind, reason))
        return error or RankError(f"rank {self._rank} of {self._size} failed", code="DSA502")

    def done(self) -> None:
        """Come to no further round; waits for nobody, and is silent where the board is lost."""
        if self._verdict is None:
            with suppress(RankError):
                self._board.claim(self._number, self._rank, Entry(Arrival.ENDED))

    def raise_if_broken(self) -> None:
        """Raise the error of an earlier round again, where there was one."""
        error = self._error()
        if error is not None:
            raise error

    def _error(self) -> RankError | None:
        """Return the group's error as a new object, since a cause and a traceback are attached to what is raised."""
        return None if self._verdict is None else decide(*self._verdict, self._timeout_s)

    def _meet(self, entry: Entry) -> RankError | None:
        """Bring an entry to the next round and return the error that all ranks read from it, None where all is well."""
        if self._verdict is None:
            number = self._number
            self._number += 1
            standing = self._board.claim(number, self._rank, entry)
            entries = self._wait(number)
            if entry.kind is not Arrival.CAME or decide(number, entries, self._timeout_s) is not None:
                self._verdict = number, entries
                self.is_culprit = standing == entry and entry.kind is Arrival.FAILED
        return self._error()

    def _wait(self, number: int) -> list[Entry]:
        """Return the entries of a round once every place is taken, by its rank or by one that will not wait longer."""
        started = time.monotonic()
        deadline = started + self._timeout_s
        settle_s: float | None = self._timeout_s / 2
        while True:
            entries = self._board.read(number)
            standing = [entry for entry in entries if entry is not None]
            if len(standing) == self._size:
                return standing
            now = time.monotonic()
            if settle_s is not None and not can_succeed(entries):
                deadline, settle_s = min(deadline, now + settle_s), None
            waits_for = [rank for rank, entry in enumerate(entries) if entry is None]
            if now >= deadline or (settle_s is None and not any(map(self._board.is_expected, waits_for))):
                for rank in waits_for:
                    self._board.claim(number, rank, Entry(Arrival.ABSENT))
            else:
                self._board.wait(number, entries, now - started, deadline - now)


class ControlPlane:
    """The part of a comm that moves no payload, over its rounds: to agree, to fail and to end together."""

    _rounds: Rounds

    def agree(self, fingerprint: str) -> None:
        """Return once every rank has come with the same fingerprint; raises RankError DSA501, DSA502 or DSA503."""
        self._rounds.come(Entry(Arrival.CAME, fingerprint))

    def fail(self, reason: str) -> RankError:
        """Tell all ranks that this one failed, and return the error that they raise."""
        return self._rounds.fail(reason)

    def done(self) -> None:
        """Tell all ranks that this one makes no further collective."""
        self._rounds.done()
