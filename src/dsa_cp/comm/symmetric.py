"""A group whose GPUs reach each other's memory: packed rows go straight into the cache slots of every rank, in one kernel.

Two ways. *Push*: pools stand in symmetric memory and each rank writes its rows into every rank's pool; rows may be anywhere
and nothing is staged. *Pull*: rows stand in a symmetric buffer and each rank reads those of its peers into a pool of its
own. Push is the faster one, since NVLink carries stores with less beside them than loads, and it needs no wait before
the first byte; pull serves pools that the engine has allocated elsewhere. Both are one launch, captured like any other.

NVLink multicast is not used.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import torch
import torch.distributed._symmetric_memory as symm_mem
from torch import Tensor

from dsa_contracts.core.errors import ArgumentError, RankError
from dsa_cp.comm.distributed import DistributedComm, ProcessGroup

MAX_PROGRAMS = 1024
"""Programs of one launch, at most: each has a cell for every peer."""

UNITS = 512
"""Units of a row that a program moves at a time: two 16-byte units a thread."""

ALIGNMENT = 256
"""Bytes to which parts of the symmetric buffer are aligned."""


class Part(NamedTuple):
    """One row format's share of a call.

    Attributes:
        pool: bytes [num_pages, page_size, row_bytes].
        rows: bytes [n, row_bytes].
    """

    pool: Tensor
    rows: Tensor


class SymmetricComm:
    """A process group over NCCL whose GPUs share memory; see `dsa_contracts.core.comm.Exchange`.

    Args:
        inner: the group, one process a GPU of one host; it has the control plane and `all_gather`.
        device: this rank's GPU.
        staged_bytes: bytes of the rows of one rank and one layer that a pull stages, at most; 0 where only pushes are made.

    Sync: collective on the host.
    """

    def __init__(self, inner: DistributedComm, device: torch.device, *, staged_bytes: int = 0) -> None:
        self._inner = inner
        self._device = device
        self._targets: dict[int, Tensor] = {}
        self._compiled: dict[object, Any] = {}
        self._handles: dict[int, Any] = {}
        self._half_bytes = _aligned(staged_bytes)
        self._half = 0
        self._staged: int | None = None
        flag_bytes = _aligned(MAX_PROGRAMS * inner.size * 4)
        self._buffer, bases = self._share(flag_bytes + 2 * self._half_bytes)
        self._flag_bytes = flag_bytes
        self._bases = torch.tensor(bases, dtype=torch.int64, device=device)
        self._counts = torch.zeros(MAX_PROGRAMS, dtype=torch.int32, device=device)
        self._programs = min(4 * torch.cuda.get_device_properties(device).multi_processor_count, MAX_PROGRAMS)

    @property
    def size(self) -> int:
        """Ranks of the group."""
        return self._inner.size

    @property
    def rank(self) -> int:
        """This rank."""
        return self._inner.rank

    @property
    def is_culprit(self) -> bool:
        """Whether the group's error has the reason that this rank gave."""
        return self._inner.is_culprit

    @property
    def process_group(self) -> ProcessGroup:
        """The process group."""
        return self._inner.process_group

    def all_gather(self, rows: Tensor) -> Tensor:
        """Gather through the process group; see `DistributedComm.all_gather`."""
        return self._inner.all_gather(rows)

    def all_to_all(self, rows: Tensor, send: Sequence[int], take: Sequence[int]) -> Tensor:
        """Exchange through the process group; see `DistributedComm.all_to_all`."""
        return self._inner.all_to_all(rows, send, take)

    def agree(self, fingerprint: str) -> None:
        """Return once every rank has come with the same fingerprint; raises RankError DSA501, DSA502 or DSA503."""
        self._inner.agree(fingerprint)

    def fail(self, reason: str) -> RankError:
        """Tell all ranks that this one failed, and return the error that they raise."""
        return self._inner.fail(reason)

    def done(self) -> None:
        """Tell all ranks that this one makes no further collective."""
        self._inner.done()

    def new_pools(self, count: int, shape: Sequence[int]) -> list[Tensor]:
        """Return pools that peers can write to: zeroed uint8 of one shape, the same call on every rank.

        A pool that a rank has written to by other means than `gather_write` must be followed by `meet` before the next one.
        """
        size = _aligned(prod(shape))
        memory, bases = self._share(count * size)
        pools = [memory[at * size : at * size + prod(shape)].view(*shape) for at in range(count)]
        for at, pool in enumerate(pools):
            starts = [base + at * size for base in bases]
            self._targets[pool.data_ptr()] = torch.tensor(starts, dtype=torch.int64, device=self._device)
        return pools

    def staged_rows(self, rows: int, *widths: int) -> list[Tensor]:
        """Return where the next pull's rows are to be written: uint8 [rows, width] of the symmetric buffer.

        The two halves of the buffer take turns, so that peers may still read the rows of the layer before. Where a half
        comes twice in a row, as at the seam of a captured graph with an odd number of pulls, `meet` must stand between.

        Args:
            rows: `nnz_padded`, the same on every rank.
            *widths: bytes of a row of each part.

        Raises:
            ArgumentError: DSA602, the buffer is too small.
        """
        ends = [0]
        for width in widths:
            ends.append(_aligned(ends[-1] + rows * width))
        if ends[-1] > self._half_bytes:
            raise ArgumentError(f"{ends[-1]} bytes of rows are to be staged; staged_bytes is {self._half_bytes}")
        self._half = 1 - self._half
        half = self._flag_bytes + self._half * self._half_bytes
        spans = zip(ends, widths, strict=False)
        parts = [self._buffer[half + at : half + at + rows * width].view(rows, width) for at, width in spans]
        self._staged = parts[0].data_ptr()
        return parts

    def can_push(self, *pools: Tensor) -> bool:
        """Whether peers can write to all of these pools."""
        return all(pool.data_ptr() in self._targets for pool in pools)

    def push(self, parts: Sequence[Part], loc: Tensor, loc_start: int, nnz_padded: int) -> None:
        """Write this rank's rows into every rank's pools, and wait for those of the others.

        Args:
            parts: one or two, with equally many rows; pools from `new_pools`.
            loc: int64, a slot for each row from `loc_start` on; negative: not written. The same slots on every rank.
            loc_start: where this rank's slots begin.
            nnz_padded: the same on every rank; no rank has more rows.
        """
        from dsa_cp.triton_jit.symmetric import push_rows

        args: list[object] = [loc, loc_start]
        shapes: list[int] = []
        for pool, rows in parts:
            width, lanes = _units(pool, rows)
            args += [rows, self._targets[pool.data_ptr()], rows.shape[0] * width]
            shapes += [width, lanes]
        if len(parts) == 1:
            args += [*args[2:4], 0]
            shapes += [0, 1]
        self._launch(push_rows, nnz_padded * shapes[0], args, (*shapes, self.size, UNITS))

    def pull(self, parts: Sequence[Part], loc: Tensor, nnz_padded: int) -> None:
        """Write the rows of all ranks, as each has them in `staged_rows`, into this rank's pools.

        Args:
            parts: one or two; rows that are not those of the last `staged_rows` are copied there.
            loc: int64 [cp_size * nnz_padded], rank-major; negative: not written.
            nnz_padded: rows of each rank.

        Raises:
            ArgumentError: DSA602, the number of ranks is no power of two, which a tile of a kernel needs.
        """
        from dsa_cp.triton_jit.symmetric import pull_rows

        if self.size & (self.size - 1):
            raise ArgumentError(f"a pull is for 2, 4 or 8 ranks, not {self.size}; pools from new_pools can be pushed to")
        if parts[0].rows.data_ptr() != self._staged:
            places = self.staged_rows(nnz_padded, *(rows.shape[1] for _, rows in parts))
            for place, (_, rows) in zip(places, parts, strict=True):
                place[: rows.shape[0]].copy_(rows)
            parts = [Part(pool, place) for (pool, _), place in zip(parts, places, strict=True)]
        self._staged = None
        args: list[object] = [loc, nnz_padded]
        shapes: list[int] = []
        for pool, rows in parts:
            shapes += _units(pool, rows)
            args += [rows.data_ptr() - self._buffer.data_ptr(), pool]
        if len(parts) == 1:
            args, shapes = [*args[:4], 0, args[3]], [*shapes, 0, 1]
        self._launch(pull_rows, nnz_padded * shapes[0], args, (*shapes, self.size, UNITS // 2))

    def meet(self) -> None:
        """Order all that was launched before this, on every rank, before all that is launched after it."""
        from dsa_cp.triton_jit.symmetric import meet_ranks

        self._launch(meet_ranks, 1, [], (self.size,))

    def peer_memory(self, pool: Tensor, rank: int) -> Tensor:
        """Return a peer's part of a pool that `new_pools(1, ...)` made, as a tensor of this rank."""
        handle = self._handles[pool.data_ptr()]
        return handle.get_buffer(rank, tuple(pool.shape), pool.dtype)  # type: ignore[no-any-return]

    def _launch(self, kernel: Any, units: int, args: list[object], constants: tuple[int, ...]) -> None:
        """Launch a kernel over so many units; a kernel that was launched before skips Triton's dispatch."""
        if not units:
            return
        programs = min(-(-units // UNITS), self._programs)
        head = (self._bases, 0, self._counts, self.rank)
        key = (kernel, constants, *(arg.data_ptr() % 16 for arg in args if isinstance(arg, Tensor)))
        compiled = self._compiled.get(key)
        if compiled is None:
            self._compiled[key] = kernel[(programs,)](*head, *args, *constants, num_warps=8)
        else:
            compiled[(programs, 1, 1)](*head, *args, *constants)

    def _share(self, size: int) -> tuple[Tensor, list[int]]:
        """Return zeroed symmetric memory and where each rank's stands; no rank returns before all have zeroed theirs."""
        memory = symm_mem.empty(size, dtype=torch.uint8, device=self._device)
        memory.zero_()
        torch.cuda.synchronize(self._device)
        handle = symm_mem.rendezvous(memory, self._inner.process_group)
        self._handles[memory.data_ptr()] = handle
        return memory, [int(pointer) for pointer in handle.buffer_ptrs]


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _units(pool: Tensor, rows: Tensor) -> tuple[int, int]:
    """Return units of a row and 4-byte words of a unit; raises ArgumentError DSA602 for rows that are not whole words."""
    width = rows.shape[1]
    if width % 4 or rows.data_ptr() % 4 or pool.data_ptr() % 4:
        raise ArgumentError(f"rows of {width} bytes are moved in words of 4 bytes, and do not stand on them")
    lanes = 1 if width % 16 or rows.data_ptr() % 16 or pool.data_ptr() % 16 else 4
    return width // (4 * lanes), lanes
