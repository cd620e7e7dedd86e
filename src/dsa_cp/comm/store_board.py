"""The board of a group in a key-value store, such as the TCPStore of torch.distributed."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Protocol

from dsa_contracts.core.errors import ArgumentError, RankError
from dsa_cp.comm.rounds import KEPT_ROUNDS, Board
from dsa_cp.comm.verdict import Arrival, Entry

NO_ROUND = -1
DEATHS = "deaths"


class KeyValueStore(Protocol):
    """What is needed of a store; `torch.distributed.TCPStore` and a PrefixStore over it have it."""

    def set(self, key: str, value: str, /) -> None:
        """Write a value."""

    def get(self, key: str, /) -> bytes:
        """Return the value of a key that exists."""

    def add(self, key: str, amount: int, /) -> int:
        """Add to a number, 0 where nothing stands, and return the sum."""

    def multi_get(self, keys: list[str], /) -> list[bytes]:
        """Return the values of keys that exist."""

    def check(self, keys: list[str], /) -> bool:
        """Whether all keys exist."""

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """Write a value where another one, or for an empty one nothing, stands; return what then stands there."""


class StoreBoard:
    """The board of a group in a key-value store: one key for each rank and each of the last four rounds.

    A key is written by compare-and-set from what this rank read there four rounds ago, which all ranks have read alike;
    so the first writer of a round wins, no key is ever deleted, and the store does not grow.
    """

    def __init__(self, store: KeyValueStore, cp_size: int) -> None:
        self._store = store
        self._keys = [[f"{slot}/{rank}" for rank in range(cp_size)] for slot in range(KEPT_ROUNDS)]
        blank = _encode(NO_ROUND, Entry(Arrival.CAME))
        self._last = [[blank] * cp_size for _ in range(KEPT_ROUNDS)]
        for key in chain(*self._keys):
            self._store.compare_set(key, "", blank)

    def enter(self, rank: int) -> None:
        """Take the place of a rank; raises ArgumentError DSA602 where another group has used this store."""
        if self._store.add(f"entered/{rank}", 1) > 1:
            raise ArgumentError(
                f"the store already has a rank {rank}: another group has used it",
                facts=[("try", "give each group a PrefixStore of its own")],
            )

    def claim(self, number: int, rank: int, entry: Entry) -> Entry:
        """Put an entry in an open place, and return the entry that stands there."""
        slot = number % KEPT_ROUNDS
        key, last = self._keys[slot][rank], self._last[slot][rank]
        with _reachable():
            standing = self._store.compare_set(key, last, _encode(number, entry))
        return _decode(standing.decode())[1]

    def read(self, number: int) -> Sequence[Entry | None]:
        """Return the entries of a round in rank order, None for places still open."""
        slot = number % KEPT_ROUNDS
        with _reachable():
            texts = [value.decode() for value in self._store.multi_get(self._keys[slot])]
        found = [_decode(text) for text in texts]
        if all(at == number for at, _ in found):
            self._last[slot] = texts
        return [entry if at == number else None for at, entry in found]

    def wait(self, number: int, seen: Sequence[Entry | None], waited_s: float, at_most_s: float) -> None:
        """Sleep for an eighth of the time waited so far, at most 2 ms; a read is itself a wait of some 50 us.

        The store's own blocking wait can look at no second key, and logs each time it runs out.
        """
        if waited_s > 0.001:
            time.sleep(min(waited_s / 8, 0.002, at_most_s))
            self.note_deaths(self, number, seen)

    def is_expected(self, rank: int) -> bool:
        """Any rank may come."""
        return True

    def report_deaths(self, deaths: dict[int, str]) -> None:
        """Tell ranks that wait which ranks will not come, and why; for whoever started them."""
        self._store.set(DEATHS, json.dumps(sorted(deaths.items())))

    def note_deaths(self, board: Board, number: int, seen: Sequence[Entry | None]) -> None:
        """Claim the places, on a board of the same ranks, of those that are reported dead and have not come."""
        with _reachable():
            deaths = json.loads(self._store.get(DEATHS)) if self._store.check([DEATHS]) else []
        for rank, reason in deaths:
            if seen[rank] is None:
                board.claim(number, rank, Entry(Arrival.DIED, reason))


@contextmanager
def _reachable() -> Iterator[None]:
    """Turn the errors of a store that cannot be reached, all RuntimeErrors, into one that engines do not catch."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise RankError("the store of the group is lost", code="DSA502", facts=[("because", reason)]) from error


def _encode(number: int, entry: Entry) -> str:
    return f"{number} {entry.kind.value} {entry.text}"


def _decode(text: str) -> tuple[int, Entry]:
    number, kind, rest = text.split(" ", 2)
    return int(number), Entry(Arrival(kind), rest)
