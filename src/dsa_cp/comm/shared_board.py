"""The board of a group whose ranks are processes of one host: a file that all of them have mapped into memory.

A rank writes its entry into a place of its own and reads those of the others, which takes microseconds where a store takes
hundreds. A place is written under a file lock, since a rank that will not wait longer may close the place of another one;
it is read without: an entry with the same bytes as this rank's own is what it seems to be, and any other has a checksum.
"""

import fcntl
import mmap
import os
import struct
import time
import weakref
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from dsa_cp.comm.rounds import KEPT_ROUNDS
from dsa_cp.comm.verdict import Arrival, Entry

PLACE_BYTES = 1 << 16
"""Room for one entry; memory that no entry has reached is never touched. A longer text is cut."""

SPIN_S = 0.0005
"""How long a rank that waits asks again at once: longer than ranks that run alike are apart."""

_HEAD = struct.Struct("<qIIB")
"""Round, length of the text, checksum of all that follows the round, kind."""

_KINDS = tuple(Arrival)
_CUT = " ... (cut)"


class SharedBoard:
    """The board of a group in a file of one host; see `dsa_cp.comm.rounds.Board`.

    Args:
        path: the file; made by `create`, the same one for every rank.
        cp_size: ranks of the group.
        note_deaths: called while this rank waits, to close the places of ranks that have died.
    """

    def __init__(
        self, path: Path, cp_size: int, note_deaths: "Callable[[SharedBoard, int, Sequence[Entry | None]], None]"
    ) -> None:
        self._size = cp_size
        self._note_deaths = note_deaths
        # A descriptor of this board's own: the lock belongs to it, also among threads of one process.
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._file)
        self._memory = mmap.mmap(self._file, KEPT_ROUNDS * cp_size * PLACE_BYTES)
        self._own = b""

    @staticmethod
    def create(path: Path, cp_size: int) -> None:
        """Make the file of a board, all of its places open."""
        with path.open("xb") as file:
            file.truncate(KEPT_ROUNDS * cp_size * PLACE_BYTES)
            for place in range(KEPT_ROUNDS * cp_size):
                file.seek(place * PLACE_BYTES)
                file.write(_packed(-1, Entry(Arrival.CAME)))

    def claim(self, number: int, rank: int, entry: Entry) -> Entry:
        """Put an entry in an open place, and return the entry that stands there."""
        at = self._place(number, rank)
        packed = _packed(number, entry)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            if int.from_bytes(self._memory[at : at + 8], "little", signed=True) < number:
                # The round last: an entry is read from it on.
                self._memory[at + 8 : at + len(packed)] = packed[8:]
                self._memory[at : at + 8] = packed[:8]
                standing = entry
            else:
                standing = self._entry(number, rank) or entry
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self._own = _packed(number, standing)
        return standing

    def read(self, number: int) -> Sequence[Entry | None]:
        """Return the entries of a round in rank order, None for places still open."""
        own, memory = self._own, self._memory
        starts = [self._place(number, rank) for rank in range(self._size)]
        if own and all(memory[at : at + len(own)] == own for at in starts):
            return [_unpacked(own)] * self._size
        return [self._entry(number, rank) for rank in range(self._size)]

    def wait(self, number: int, seen: Sequence[Entry | None], waited_s: float, at_most_s: float) -> None:
        """Let other processes run; after a while sleep for an eighth of the time waited so far, at most 2 ms."""
        if waited_s < SPIN_S:
            os.sched_yield()
            return
        time.sleep(min(waited_s / 8, 0.002, at_most_s))
        if waited_s > 0.002:
            self._note_deaths(self, number, seen)

    def is_expected(self, rank: int) -> bool:
        """Any rank may come."""
        return True

    def _place(self, number: int, rank: int) -> int:
        return ((number % KEPT_ROUNDS) * self._size + rank) * PLACE_BYTES

    def _entry(self, number: int, rank: int) -> Entry | None:
        """Return the entry of a place; None where it is open, or where not all of it has arrived yet."""
        at = self._place(number, rank)
        found, length, checksum, kind = _HEAD.unpack_from(self._memory, at)
        if found != number or length > PLACE_BYTES - _HEAD.size:
            return None
        text = self._memory[at + _HEAD.size : at + _HEAD.size + length]
        if zlib.crc32(text, number & 0xFFFFFFFF) != checksum or kind >= len(_KINDS):
            return None
        return Entry(_KINDS[kind], text.decode())


def _packed(number: int, entry: Entry) -> bytes:
    """Return an entry as bytes; a text that is too long is cut at the end of a character."""
    text = entry.text.encode()
    room = PLACE_BYTES - _HEAD.size
    if len(text) > room:
        text = text[: room - len(_CUT)].decode(errors="ignore").encode() + _CUT.encode()
    checksum = zlib.crc32(text, number & 0xFFFFFFFF)
    return _HEAD.pack(number, len(text), checksum, _KINDS.index(entry.kind)) + text


def _unpacked(packed: bytes) -> Entry:
    return Entry(_KINDS[_HEAD.unpack_from(packed)[3]], packed[_HEAD.size :].decode())
