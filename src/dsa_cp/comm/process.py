"""A context-parallel group of real processes on this machine, one a rank, started and ended by one call.

Processes are forked from a server that has imported torch once; nothing runs on it, so that the fork is safe. It ends
with this process.
"""

import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import NamedTuple, TypeVar, TypeVarTuple

import torch

from dsa_contracts.core.comm import Exchange, describe_values, guard
from dsa_contracts.core.errors import ArgumentError, ContractError, RankError
from dsa_contracts.dsa.batch_facts import check_ranks
from dsa_cp.comm.distributed import board_of, connect, serve_store
from dsa_cp.comm.store_board import StoreBoard

T = TypeVar("T")
Args = TypeVarTuple("Args")

EXIT_PATIENCE_S = 2.0
"""How long a rank that has reported may take to end, and how long after a failure the others may take to report it."""


class _Job(NamedTuple):
    """What a child needs; `call` is pickled by itself, so that nothing of it is imported under another environment."""

    rank: int
    cp_size: int
    port: int
    timeout_s: float
    device: str
    environment: dict[str, str]
    call: bytes


class _Outcome(NamedTuple):
    """What a rank returned, pickled, or the error that it raised and the cause of that."""

    result: bytes = b""
    error: RankError | None = None
    cause: BaseException | None = None
    is_culprit: bool = False


class _Child(NamedTuple):
    """One rank's process and the pipe on which its outcome comes."""

    process: BaseProcess
    pipe: Connection


def run_processes(
    cp_size: int,
    target: Callable[[Exchange, *Args], T],
    *args: *Args,
    device: str = "cpu",
    timeout_s: float = 5.0,
    deadline_s: float = 600.0,
) -> list[T]:
    """Run `target(comm, *args)` as every rank of a group of real processes; results come in rank order.

    Each rank runs on one thread, without autograd, under this process's environment. No process of a rank is left afterwards.

    Args:
        cp_size: ranks of the group.
        target: importable by name.
        *args: as pickled; tensors are copied.
        device: `cpu`, over gloo; or `cuda`, over NCCL, where rank r's current device is GPU r.
        timeout_s: how long a collective waits for its ranks.
        deadline_s: how long the whole run may take.

    Raises:
        RankError: the one error of the group, its cause the error of the rank that failed; DSA502 where a process died,
            DSA503 where the deadline passed.
        BatchError: DSA302, a cp_size below 1.
        ArgumentError: DSA602, a target or argument that does not pickle, or fewer GPUs than ranks.
    """
    _check_device(device, cp_size)
    call = _packed_call((target, args))
    store = serve_store()
    children: list[_Child] = []
    outcomes: dict[int, _Outcome] = {}
    try:
        for rank in range(cp_size):
            children.append(_start(_Job(rank, cp_size, store.port, timeout_s, device, dict(os.environ), call)))
        deaths = _collect(children, outcomes, board_of(store, cp_size), timeout_s, deadline_s)
    finally:
        for rank, child in enumerate(children):
            _end(child, has_reported=rank in outcomes)
    _raise_error(cp_size, outcomes, deaths, deadline_s)
    return [pickle.loads(outcomes[rank].result) for rank in range(cp_size)]


def _check_device(device: str, cp_size: int) -> None:
    """Raise BatchError DSA302 for a cp_size below 1, and ArgumentError DSA602 unless there is a device for every rank."""
    check_ranks(cp_size, 0)
    if device not in ("cpu", "cuda"):
        raise ArgumentError(f"device is {device!r}; ranks run on cpu or cuda")
    found = torch.cuda.device_count() if device == "cuda" else cp_size
    if found < cp_size:
        raise ArgumentError(f"{cp_size} ranks need {cp_size} GPUs; this machine has {found}")


def _packed_call(call: object) -> bytes:
    """Return a target and its arguments as bytes; raises ArgumentError DSA602 where they do not pickle."""
    try:
        return pickle.dumps(call)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ArgumentError(
            f"run_processes: the target or its arguments do not pickle: {error}",
            facts=[("try", "name a function of a module, not a lambda or an inner function")],
        ) from None


def _start(job: _Job) -> _Child:
    """Start the process of one rank."""
    context = multiprocessing.get_context("forkserver")
    # Takes effect where the server does not run yet; modules that cannot be imported there are imported by each child.
    context.set_forkserver_preload(["torch.distributed", "dsa_cp.comm.process"])
    pipe, child_end = context.Pipe(duplex=False)
    process = context.Process(target=_run_child, args=(job, child_end), name=f"cp_rank {job.rank}", daemon=True)
    process.start()
    child_end.close()
    return _Child(process, pipe)


def _run_child(job: _Job, pipe: Connection) -> None:
    """Be one rank: run the call, report its outcome, leave the group."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.clear()
    os.environ.update(job.environment)
    torch.set_num_threads(1)
    backend = "gloo" if job.device == "cpu" else "nccl"
    try:
        if job.device != "cpu":
            torch.cuda.set_device(job.rank)
        comm = connect(job.rank, job.cp_size, job.port, backend=backend, hosts_store=False, timeout_s=job.timeout_s)
    except (ContractError, RuntimeError, OSError) as error:
        unconnected = RankError(f"rank {job.rank} of {job.cp_size} did not connect: {error}", code="DSA502")
        pipe.send_bytes(_packed(_Outcome(error=unconnected, cause=error)))
        return
    try:
        with torch.no_grad(), guard(comm):
            target, args = pickle.loads(job.call)
            outcome = _Outcome(pickle.dumps(target(comm, *args)))
    except RankError as error:
        outcome = _Outcome(error=error, cause=error.__cause__, is_culprit=comm.is_culprit)
    pipe.send_bytes(_packed(outcome))
    comm.close()


def _end_with_parent() -> None:
    """End this process when its parent does, also where it was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _packed(outcome: _Outcome) -> bytes:
    """Return an outcome as bytes, without its cause where that does not survive the way."""
    try:
        packed = pickle.dumps(outcome)
        pickle.loads(packed)
    except Exception:  # noqa: BLE001 - an exception of any class may raise anything when it is pickled
        return pickle.dumps(outcome._replace(cause=None))
    return packed


def _collect(
    children: list[_Child],
    outcomes: dict[int, _Outcome],
    board: StoreBoard,
    timeout_s: float,
    deadline_s: float,
) -> dict[int, str]:
    """Fill in the outcomes as they come and return how the ranks died that gave none; ends at the deadline."""
    deaths: dict[int, str] = {}
    deadline = time.monotonic() + deadline_s
    pending = dict(enumerate(children))
    while pending and (left_s := deadline - time.monotonic()) > 0:
        wait([end for child in pending.values() for end in (child.pipe, child.process.sentinel)], left_s)
        for rank, child in list(pending.items()):
            is_alive = child.process.is_alive()
            outcome = _receive(child.pipe)
            if outcome is not None:
                outcomes[rank] = outcome
            elif not is_alive:
                deaths[rank] = _describe_exit(child.process.exitcode)
                board.report_deaths(deaths)
            else:
                continue
            del pending[rank]
            if rank in deaths or outcomes[rank].error is not None:
                deadline = min(deadline, time.monotonic() + timeout_s + EXIT_PATIENCE_S)
    return deaths


def _receive(pipe: Connection) -> _Outcome | None:
    """Return the outcome that waits in a pipe, None where there is none or its process died while it sent it."""
    try:
        outcome = pickle.loads(pipe.recv_bytes()) if pipe.poll() else None
    except (EOFError, OSError):
        return None
    return outcome if isinstance(outcome, _Outcome) else None


def _describe_exit(code: int | None) -> str:
    return signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"


def _end(child: _Child, *, has_reported: bool) -> None:
    """Leave no process behind: one that has reported may end by itself, any other is killed."""
    if has_reported:
        child.process.join(EXIT_PATIENCE_S)
    if child.process.is_alive():
        child.process.kill()
    child.process.join()
    child.process.close()
    child.pipe.close()


def _raise_error(cp_size: int, outcomes: dict[int, _Outcome], deaths: dict[int, str], deadline_s: float) -> None:
    """Raise what the ranks raised, or an error about ranks that died or did not end."""
    errors = [outcomes[rank] for rank in sorted(outcomes) if outcomes[rank].error is not None]
    errors.sort(key=lambda outcome: not outcome.is_culprit)
    for outcome in errors:
        if outcome.error is not None and all(f"died: {text}" in str(outcome.error) for text in deaths.values()):
            raise outcome.error from outcome.cause
    missing = [rank for rank in range(cp_size) if rank not in outcomes and rank not in deaths]
    if not deaths and not missing:
        return
    values = {rank: "returned" if outcome.error is None else "raised" for rank, outcome in outcomes.items()}
    values |= {rank: f"died: {text}" for rank, text in deaths.items()} | dict.fromkeys(missing, "still ran, was ended")
    guilty = sorted(deaths) or missing
    ranks = f"rank{'s' * (len(guilty) > 1)} {', '.join(map(str, guilty))} of {cp_size}"
    headline = f"{ranks} died" if deaths else f"{ranks} did not end within {deadline_s:g} s"
    raise describe_values(headline, values, "DSA502" if deaths else "DSA503")
