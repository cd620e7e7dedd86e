"""The board in a store, with rounds in threads: it does not grow, is not shared, and may be lost."""

import threading
from collections.abc import Callable
from functools import partial

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined] # public, not in __all__

from dsa_contracts.core.errors import ArgumentError, RankError
from dsa_cp.comm.distributed import board_of, serve_store
from dsa_cp.comm.rounds import Rounds
from dsa_cp.comm.store_board import StoreBoard
from dsa_cp.comm.verdict import Arrival, Entry
from tests.support import rank_programs as targets


def rounds_in_threads(cp_size: int, body: Callable[[Rounds, int], None]) -> int:
    """Run rounds over one store, a thread a rank; return the number of keys that the store then has."""
    server = serve_store()
    rounds = [Rounds(board_of(server, cp_size), cp_size, rank, 0.5) for rank in range(cp_size)]
    threads = [threading.Thread(target=body, args=(rounds[rank], rank)) for rank in range(cp_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return int(server.num_keys())


def test_the_store_does_not_grow_with_the_rounds() -> None:
    def agree_often(count: int, rounds: Rounds, rank: int) -> None:
        for number in range(count):
            rounds.come(Entry(Arrival.CAME, f"round {number}"))

    sizes = [rounds_in_threads(3, partial(agree_often, count)) for count in (4, 50)]
    assert sizes[0] == sizes[1]


def test_a_store_that_another_group_has_used_is_refused() -> None:
    server = serve_store()
    board_of(server, 2).enter(1)
    board_of(server, 2).enter(0)

    with pytest.raises(ArgumentError) as caught:
        board_of(server, 2).enter(1)
    assert str(caught.value) == targets.lines(
        "ArgumentError DSA602: the store already has a rank 1: another group has used it",
        "  try       give each group a PrefixStore of its own",
    )


def test_a_store_that_is_lost_is_a_rank_error_and_done_is_silent() -> None:
    class LostStore(HashStore):
        is_lost = False

        def compare_set(self, key: str, expected: str, desired: str) -> bytes:
            if self.is_lost:
                raise RuntimeError("Connection reset by peer\nframe #0")
            return super().compare_set(key, expected, desired)

    store = LostStore()
    rounds = Rounds(StoreBoard(store, 2), 2, 0, 0.5)
    store.is_lost = True

    with pytest.raises(RankError) as caught:
        rounds.come(Entry(Arrival.CAME, "x"))
    assert str(caught.value) == targets.lines(
        "RankError DSA502: the store of the group is lost", "  because   Connection reset by peer"
    )
    rounds.done()
