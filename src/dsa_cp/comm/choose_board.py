"""Which board a group uses: one in shared memory where all of its ranks are on one host, else the one in the store."""

import os
import platform
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from dsa_contracts.core.errors import RankError
from dsa_cp.comm.rounds import Board
from dsa_cp.comm.shared_board import SharedBoard
from dsa_cp.comm.store_board import KeyValueStore, StoreBoard
from dsa_cp.comm.verdict import Entry

SHARED_MEMORY = Path("/dev/shm")
NO_FILE = "-"


class WaitingStore(KeyValueStore, Protocol):
    """A store on which a rank can wait for keys; `torch.distributed.TCPStore` has it."""

    def wait(self, keys: list[str], timeout: timedelta, /) -> None:
        """Return once all keys exist; raises RuntimeError after the timeout."""


def choose_board(store: WaitingStore, cp_size: int, rank: int, timeout_s: float) -> Board:
    """Return the board of a group; every rank of it calls this, and all of them get the same kind.

    Sync: collective, on the host.

    Raises:
        ArgumentError: DSA602, the store was used by another group.
        RankError: DSA502, a rank did not come, or the store is lost.
    """
    board = StoreBoard(store, cp_size)
    board.enter(rank)
    try:
        path = _agreed_path(store, cp_size, rank, timedelta(seconds=timeout_s))
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise RankError("ranks did not agree on a board", code="DSA502", facts=[("because", reason)]) from error
    return board if path is None else _opened(path, store, board, cp_size, rank, timedelta(seconds=timeout_s))


def this_host() -> str:
    """Return what two processes have in common if and only if they run on one host and see one shared memory."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    if not boot.exists() or not SHARED_MEMORY.is_dir() or not hasattr(os, "sched_yield"):
        return ""
    return f"{platform.node()} {boot.read_text().strip()} {SHARED_MEMORY.stat().st_dev}"


def _agreed_path(store: WaitingStore, cp_size: int, rank: int, timeout: timedelta) -> Path | None:
    """Return the file that rank 0 has made where all ranks are on its host, None where they are not."""
    store.set(f"host/{rank}", this_host())
    if rank == 0:
        keys = [f"host/{peer}" for peer in range(cp_size)]
        store.wait(keys, timeout)
        hosts = set(store.multi_get(keys))
        store.set("board", str(_created(cp_size)) if len(hosts) == 1 and hosts != {b""} else NO_FILE)
    store.wait(["board"], timeout)
    name = store.get("board").decode()
    return None if name == NO_FILE else Path(name)


def _created(cp_size: int) -> Path | str:
    """Return the file of a new board in shared memory, or that there is none where it cannot be made."""
    # The name alone: `create` refuses a file that exists.
    name = tempfile.mktemp(prefix="dsa-cp-board-", dir=SHARED_MEMORY)
    try:
        SharedBoard.create(Path(name), cp_size)
    except OSError:
        return NO_FILE
    return Path(name)


def _opened(path: Path, store: WaitingStore, board: StoreBoard, cp_size: int, rank: int, timeout: timedelta) -> Board:
    """Return the board in the file where every rank can open it, else the one in the store; the file's name goes."""

    def note_deaths(shared: SharedBoard, number: int, seen: Sequence[Entry | None]) -> None:
        board.note_deaths(shared, number, seen)

    try:
        shared: SharedBoard | None = SharedBoard(path, cp_size, note_deaths)
    except OSError:
        shared = None
    keys = [f"opened/{peer}" for peer in range(cp_size)]
    store.set(keys[rank], "yes" if shared else "no")
    store.wait(keys, timeout)
    if rank == 0:
        path.unlink(missing_ok=True)
    if shared is None or set(store.multi_get(keys)) != {b"yes"}:
        return board
    return shared
