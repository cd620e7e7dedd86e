"""A context-parallel group over torch.distributed; the only module that imports it.

Payload goes through the process group, as bytes: gloo refuses float8. The control plane goes through shared memory where all
ranks are on one host, else through a key-value store, so that it works on the host alone and still works when the process
group does not.
"""

import os
import socket
import time
from collections.abc import Sequence
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined] # public, not in __all__

from dsa_contracts.core.errors import RankError
from dsa_contracts.core.modes import Mode, mode_from_environment
from dsa_contracts.dsa.batch_facts import check_ranks
from dsa_cp.comm.choose_board import choose_board
from dsa_cp.comm.rounds import ControlPlane, Rounds
from dsa_cp.comm.store_board import StoreBoard
from dsa_cp.comm.verdict import Kind, exchange_entry, payload_entry

ProcessGroup = dist.ProcessGroup
LOOPBACK = "127.0.0.1"
BOARD_PATIENCE_S = 60.0
"""How long a rank waits, at the start, for all ranks to say which host they are on."""

# torch 2.13 calls it all_gather_single, and warns of the name that 2.11 has.
ALL_GATHER = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


class DistributedComm(ControlPlane):
    """A process group as one of its ranks sees it; see `dsa_contracts.core.comm.Exchange`.

    Args:
        store: the control plane, under a prefix that no other group uses, with `multi_get`; TCPStore has it. A connection
            of its own keeps it apart from the traffic of the process group.
        group: the process group; None is the default group. Its own timeout ends a collective that a rank does not join.
        timeout_s: how long a round of the control plane waits for its ranks.
        checks_payload: whether ranks compare dtype and shape before each gather, as needed unless `agree` comes before
            it: bytes of another shape may hang or abort a backend. None: in all modes but production.

    Raises:
        ArgumentError: DSA602, the store was used by another group; or the timeout is not above 0.
    """

    def __init__(
        self,
        store: Store,
        group: ProcessGroup | None = None,
        *,
        timeout_s: float = 5.0,
        checks_payload: bool | None = None,
    ) -> None:
        self._group = group
        self._size = dist.get_world_size(group)
        self._rank = dist.get_rank(group)
        is_production = mode_from_environment() is Mode.PRODUCTION
        self._checks_payload = not is_production if checks_payload is None else checks_payload
        board = choose_board(store, self._size, self._rank, max(timeout_s, BOARD_PATIENCE_S))
        self._rounds = Rounds(board, self._size, self._rank, timeout_s)

    @property
    def size(self) -> int:
        """Ranks of the group."""
        return self._size

    @property
    def rank(self) -> int:
        """This rank."""
        return self._rank

    @property
    def is_culprit(self) -> bool:
        """Whether the group's error has the reason that this rank gave."""
        return self._rounds.is_culprit

    @property
    def process_group(self) -> ProcessGroup:
        """The process group."""
        group = self._group or dist.group.WORLD
        if group is None:
            raise RankError("the process group is closed", code="DSA502")
        return group

    def all_gather(self, rows: Tensor) -> Tensor:
        """Gather the same number of rows from every rank.

        Args:
            rows: uint8 [n, width], contiguous; n and width the same on every rank.

        Returns:
            uint8 [cp_size * n, width], new memory, in rank-major order.

        Sync: collective on the current stream; a round of the control plane before it where payloads are checked.

        Raises:
            RankError: DSA501 (rows of another dtype, shape or strides, on any rank), DSA502, DSA503.
        """
        self._rounds.raise_if_broken()
        entry = payload_entry(rows)
        if self._checks_payload or entry.kind is Kind.REFUSED:
            self._rounds.come(entry)
        gathered = rows.new_empty(self._size * rows.shape[0], rows.shape[1])
        if rows.numel():
            try:
                ALL_GATHER(gathered, rows, group=self._group)
            except RuntimeError as error:
                raise self._rounds.fail(f"{entry.text}: {str(error).splitlines()[0]}", Kind.LOST) from error
        return gathered

    def all_to_all(self, rows: Tensor, send: Sequence[int], take: Sequence[int]) -> Tensor:
        """Send each rank its rows and take those that each rank sends here; see `Exchange.all_to_all`.

        Args:
            rows: uint8 [n, width], contiguous, in the order of the ranks that get them.
            send: rows for each rank.
            take: rows from each rank.

        Returns:
            uint8 [sum(take), width], new memory, sender after sender.

        Sync: collective on the current stream; a round of the control plane before it where payloads are checked.

        Raises:
            RankError: DSA501 (rows of another dtype or width, counts that do not fit), DSA502, DSA503.
        """
        self._rounds.raise_if_broken()
        entry = exchange_entry(self._size, rows, send, take)
        if self._checks_payload or entry.kind is not Kind.CAME:
            self._rounds.come(entry)
        taken = rows.new_empty(sum(take), rows.shape[1])
        if rows.shape[1]:  # a rank without rows takes part as well: the others may have some for each other
            try:
                dist.all_to_all_single(taken, rows, list(take), list(send), group=self._group)
            except RuntimeError as error:
                raise self._rounds.fail(f"{entry.text}: {str(error).splitlines()[0]}", Kind.LOST) from error
        return taken


class ConnectedComm(DistributedComm):
    """The default process group as `connect` made it, to be closed by who made it.

    Args:
        store: this rank's connection to the store of the group.
        server: the store itself, where this rank hosts it.
        timeout_s: as for DistributedComm; the host also waits so long for other ranks before it closes the store.
    """

    def __init__(self, store: Store, server: Store | None, timeout_s: float) -> None:
        super().__init__(PrefixStore("control", store), timeout_s=timeout_s)
        self._store = store
        self._server = server
        self._timeout_s = timeout_s

    def close(self) -> None:
        """Destroy the process group, and the store where this rank hosts it."""
        self.done()
        dist.destroy_process_group()
        closed = self._store.add("closed", 1)
        deadline = time.monotonic() + self._timeout_s
        while self._server is not None and closed < self.size and time.monotonic() < deadline:
            time.sleep(0.002)
            closed = self._store.add("closed", 0)
        self._server = None


def connect(
    rank: int,
    cp_size: int,
    port: int,
    *,
    host: str = LOOPBACK,
    backend: str = "gloo",
    hosts_store: bool | None = None,
    timeout_s: float = 5.0,
    start_timeout_s: float = 60.0,
) -> ConnectedComm:
    """Make the default process group of this process, and the store that it and its control plane use.

    Args:
        rank: this rank.
        cp_size: ranks of the group.
        port: of the store.
        host: of the store. On loopback, gloo is held to loopback too.
        backend: of the process group; nccl works on the current GPU.
        hosts_store: whether this rank hosts the store; None: rank 0 does.
        timeout_s: how long a collective waits for its ranks.
        start_timeout_s: how long to wait for all ranks to connect.

    Raises:
        BatchError: DSA302, a rank that is not in the group.
    """
    check_ranks(cp_size, rank)
    server = serve_store(port) if (rank == 0 if hosts_store is None else hosts_store) else None
    start = timedelta(seconds=start_timeout_s)
    # Two connections: a round must not wait for what the process group does on its own.
    store, group_store = (TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=start) for _ in range(2))
    store.set(f"connected/{rank}", "")
    store.wait([f"connected/{peer}" for peer in range(cp_size)], start)
    if host == LOOPBACK and "lo" in (name for _, name in socket.if_nameindex()):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    # Twice the time of the control plane, which should be the one to speak; and never too short to connect.
    timeout = timedelta(seconds=max(2 * timeout_s, 10.0))
    group, gpu = PrefixStore("group", group_store), current_gpu() if backend == "nccl" else None
    dist.init_process_group(backend, store=group, rank=rank, world_size=cp_size, timeout=timeout, device_id=gpu)
    return ConnectedComm(store, server, timeout_s)


def current_gpu() -> torch.device:
    """Return this process's current GPU by its number."""
    return torch.device("cuda", torch.cuda.current_device())


def all_gather_into(gathered: Tensor, rows: Tensor, group: ProcessGroup) -> None:
    """Gather `rows` of every rank into `gathered`, rank after rank, on the current stream; nothing is checked."""
    ALL_GATHER(gathered, rows, group=group)


def serve_store(port: int = 0) -> TCPStore:
    """Return a new store that listens on loopback alone, at its `port`; 0 picks a free one."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((LOOPBACK, port))
        listener.listen()
        port = listener.getsockname()[1]
        # A duplicate, since the store closes the descriptor that it is given.
        descriptor = os.dup(listener.fileno())
    return TCPStore(LOOPBACK, port, is_master=True, wait_for_workers=False, master_listen_fd=descriptor)


def board_of(store: Store, cp_size: int) -> StoreBoard:
    """Return the board of the group that `connect` makes over this store, for a process that is none of its ranks."""
    return StoreBoard(PrefixStore("control", store), cp_size)
