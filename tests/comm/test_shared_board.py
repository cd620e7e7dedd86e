"""The board in shared memory: same entries and same texts as any other, chosen where all ranks are on one host."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined] # public, not in __all__

from dsa_contracts.core.comm import Comm
from dsa_contracts.core.errors import RankError
from dsa_cp.comm import choose_board
from dsa_cp.comm.process import run_processes
from dsa_cp.comm.rounds import Rounds
from dsa_cp.comm.shared_board import PLACE_BYTES, SharedBoard
from dsa_cp.comm.store_board import StoreBoard
from dsa_cp.comm.verdict import Arrival, Entry
from tests.support import rank_programs as targets


def nobody_died(board: SharedBoard, number: int, seen: Sequence[Entry | None]) -> None:
    """No process runs the threads of these tests."""


def boards_of(folder: Path, cp_size: int) -> list[SharedBoard]:
    """Return one board a rank, over one file."""
    path = folder / "board"
    SharedBoard.create(path, cp_size)
    return [SharedBoard(path, cp_size, nobody_died) for _ in range(cp_size)]


def in_threads(bodies: Sequence[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=body) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_the_first_entry_in_a_place_stands(tmp_path: Path) -> None:
    first, second = boards_of(tmp_path, 2)

    assert first.claim(0, 1, Entry(Arrival.ABSENT)) == Entry(Arrival.ABSENT)
    assert second.claim(0, 1, Entry(Arrival.CAME, "late")) == Entry(Arrival.ABSENT)
    assert second.read(0) == [None, Entry(Arrival.ABSENT)]
    assert first.read(4) == [None, None]


def test_a_place_is_open_again_four_rounds_later(tmp_path: Path) -> None:
    (board,) = boards_of(tmp_path, 1)

    for number in range(9):
        entry = Entry(Arrival.CAME, f"round {number} \u00e4")
        assert board.read(number) == [None]
        assert board.claim(number, 0, entry) == entry
        assert board.read(number) == [entry]


def test_an_entry_that_has_not_arrived_whole_is_open(tmp_path: Path) -> None:
    board, other = boards_of(tmp_path, 2)
    board.claim(0, 0, Entry(Arrival.CAME, "plan=a"))
    with (tmp_path / "board").open("r+b") as file:
        file.seek(20)
        file.write(b"?")

    assert other.read(0) == [None, None]


def test_a_text_without_room_is_cut_alike_for_all(tmp_path: Path) -> None:
    board, other = boards_of(tmp_path, 2)
    board.claim(0, 0, Entry(Arrival.FAILED, "\u00e4" * PLACE_BYTES))
    (entry, _) = other.read(0)

    assert entry is not None
    assert entry.kind is Arrival.FAILED
    assert entry.text.endswith("\u00e4 ... (cut)")
    assert len(entry.text.encode()) < PLACE_BYTES


def test_many_rounds_of_many_ranks_agree_and_the_last_one_raises_the_same_text(tmp_path: Path) -> None:
    boards = boards_of(tmp_path, 3)
    texts: list[str] = [""] * 3

    def body(rank: int) -> None:
        rounds = Rounds(boards[rank], 3, rank, 5.0)
        for number in range(200):
            rounds.come(Entry(Arrival.CAME, f"round {number}"))
        try:
            rounds.come(Entry(Arrival.CAME, f"plan={'b' if rank == 1 else 'a'}"))
        except RankError as error:
            texts[rank] = str(error)

    in_threads([partial(body, rank) for rank in range(3)])
    expected = targets.lines(
        "RankError DSA501: ranks 0, 1, 2 of 3 came to collective 201 with different facts",
        "  rank 0    plan=a",
        "  rank 1    plan=b",
        "  rank 2    plan=a",
    )
    assert texts == [expected] * 3


def test_a_rank_that_is_late_finds_its_place_closed(tmp_path: Path) -> None:
    boards = boards_of(tmp_path, 2)
    early, late = (Rounds(board, 2, rank, 0.2) for rank, board in enumerate(boards))

    with pytest.raises(RankError) as first:
        early.come(Entry(Arrival.CAME, "x"))
    with pytest.raises(RankError) as second:
        late.come(Entry(Arrival.CAME, "x"))

    assert str(first.value) == str(second.value)
    assert str(first.value).startswith("RankError DSA503: rank 1 of 2 did not come to collective 1 within 0.2 s")


def chosen(hosts: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return the boards that ranks on these hosts choose."""
    store, found = HashStore(), [object()] * len(hosts)
    names = threading.local()
    monkeypatch.setattr(choose_board, "this_host", lambda: names.host)

    def body(rank: int) -> None:
        names.host = hosts[rank]
        found[rank] = choose_board.choose_board(store, len(hosts), rank, 5.0)

    in_threads([partial(body, rank) for rank in range(len(hosts))])
    return found


def test_ranks_of_one_host_share_memory_and_leave_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(choose_board, "SHARED_MEMORY", tmp_path)

    boards = chosen(["a", "a", "a"], monkeypatch)

    assert [type(board) for board in boards] == [SharedBoard] * 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("hosts", [["a", "b"], ["", ""]])
def test_ranks_of_several_hosts_or_of_one_that_is_not_known_use_the_store(
    hosts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [type(board) for board in chosen(hosts, monkeypatch)] == [StoreBoard] * 2


def test_a_host_without_shared_memory_uses_the_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(choose_board, "SHARED_MEMORY", tmp_path / "missing")

    assert [type(board) for board in chosen(["a", "a"], monkeypatch)] == [StoreBoard] * 2


def board_of_rank(comm: Comm) -> str:
    return type(comm._rounds._board).__name__  # type: ignore[attr-defined]


@pytest.mark.process
def test_processes_of_this_machine_share_memory() -> None:
    expected = "SharedBoard" if choose_board.this_host() else "StoreBoard"

    assert run_processes(2, board_of_rank) == [expected] * 2
