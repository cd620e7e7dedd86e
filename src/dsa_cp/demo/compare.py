"""Compare what ranks have after a job with what one rank has: pool bytes exactly, attention output within a bound."""

import ctypes
import hashlib
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from dsa_contracts import Comm
from dsa_cp.comm import run_ranks
from dsa_cp.demo.run import Job, Progress, RankResult, alone, run_rank
from dsa_cp.layer.delivery import GatherIntoPools
from dsa_cp.planner.attention_layer import route_of

OUTPUT_BOUND = 1e-5
"""Largest |out - reference| / largest |reference|: float32 sums over keys may run in another order on fewer rows."""

KERNEL_BOUND = 4e-3
"""The same for kernel sets whose attention multiplies bf16 or e4m3: their stated error against float64 (tests/kernels)."""


def output_bound(kernels: str) -> float:
    """Return the bound for a kernel set by name."""
    return OUTPUT_BOUND if kernels == "torch" else KERNEL_BOUND


@dataclass(frozen=True)
class Reference:
    """What one rank has after a job.

    Attributes:
        pools: as in `RankResult`.
        outs: attention output of each batch and layer in sequence order, float32 [nnz, heads, kv_lora_rank].
    """

    pools: list[Tensor]
    outs: list[Tensor]

    def save(self, path: Path) -> None:
        """Write the reference to a file for ranks in other processes; brands stay behind."""
        torch.save({"pools": [pool.detach() for pool in self.pools], "outs": [out.detach() for out in self.outs]}, path)

    @staticmethod
    def load(path: Path) -> "Reference":
        """Map a saved reference into memory, shared by all that load it."""
        saved = torch.load(path, mmap=True, weights_only=True)
        return Reference(saved["pools"], saved["outs"])


@dataclass(frozen=True)
class RankVerdict:
    """How one rank compares with the reference.

    Attributes:
        differing_slots: pool slots, over all layers and both pools, that hold other bytes.
        first_difference: where the first of them is; empty where there is none.
        max_error: largest |out - reference| / largest |reference|; NaN where an output is NaN.
        bound: the largest `max_error` that passes.
        digest: sha256 of this rank's pool bytes.
        calls: stage calls that were checked.
        checks: facts that were compared anew.
        unknown: arguments that carried no brand.
    """

    differing_slots: int
    first_difference: str
    max_error: float
    bound: float
    digest: str
    calls: int
    checks: int
    unknown: int

    @property
    def output_equal(self) -> bool:
        """Whether the output is within the bound."""
        return self.max_error <= self.bound


def worst_error(verdicts: list[RankVerdict]) -> float:
    """Return the largest error of all ranks; NaN wins."""
    errors = [verdict.max_error for verdict in verdicts]
    return math.nan if any(map(math.isnan, errors)) else max(errors)


def json_number(value: float | None) -> float | str | None:
    """Return a number as JSON has it: what is not finite as text."""
    return value if value is None or math.isfinite(value) else str(value)


def make_reference(comm: Comm, job: Job, progress: Progress | None = None) -> Reference:
    """Run a job on one rank and return its pools and outputs in sequence order."""
    result = run_rank(comm, job, progress)
    outs = []
    for out, rows in zip(result.outs, result.rows, strict=True):
        ordered = torch.empty_like(out)
        ordered[rows] = out
        outs.append(ordered)
    return Reference(result.pools, outs)


def run_and_compare(comm: Comm, job: Job, reference: Reference | Path, progress: Progress | None = None) -> RankVerdict:
    """Run a job on one rank and compare with the reference, given itself or as a saved file."""
    result = run_rank(comm, job, progress)
    known = Reference.load(reference) if isinstance(reference, Path) else reference
    slots, first = _differing_slots(result.pools, known.pools)
    error, digest = _max_error(result, known), pool_digest(result.pools)
    bound = output_bound(job.kernels)
    return RankVerdict(slots, first, error, bound, digest, result.calls, result.checks, result.unknown)


def pool_digest(pools: list[Tensor]) -> str:
    """Return the sha256 of the bytes of pools, in order; the same in every mode and on any number of ranks."""
    digest = hashlib.sha256()
    for pool in pools:
        dense = pool.cpu().contiguous()
        digest.update((ctypes.c_char * dense.nbytes).from_address(dense.data_ptr()))
    return digest.hexdigest()


def compare_with_one_gpu(comm: Comm, job: Job) -> RankVerdict:
    """Run a job as one rank of it and alone, both on this rank's GPU, and compare: no reference leaves the GPU."""
    reference = run_ranks(1, lambda one: make_reference(one, alone(job)))[0]
    return run_and_compare(_as_planned(comm, job), job, reference)


def _as_planned(comm: Comm, job: Job) -> Comm:
    """Return the group that the plan is for: where it gathers into pools, one whose GPUs reach each other's memory."""
    from dsa_cp.comm.distributed import DistributedComm, current_gpu
    from dsa_cp.comm.symmetric import SymmetricComm

    if isinstance(route_of(job.plan).delivery, GatherIntoPools) and isinstance(comm, DistributedComm):
        return SymmetricComm(comm, current_gpu())
    return comm


def _differing_slots(pools: list[Tensor], known: list[Tensor]) -> tuple[int, str]:
    """Return how many slots hold other bytes, and where the first is."""
    count, first = 0, ""
    layers = len(pools) // 2
    for index, (pool, want) in enumerate(zip(pools, known, strict=True)):
        other = (pool != want.to(pool.device)).any(dim=-1).flatten().nonzero().flatten()
        if other.numel() and not first:
            first = f"layer {index % layers}, {'KV' if index < layers else 'index'} pool, slot {int(other[0])}"
        count += other.numel()
    return count, first


def _max_error(result: RankResult, known: Reference) -> float:
    """Return the largest relative error over all batches and layers; NaN wins."""
    worst = 0.0
    for out, rows, want in zip(result.outs, result.rows, known.outs, strict=True):
        if not rows.numel():
            continue
        expected = want.to(out.device)
        scale = float(expected.abs().max())
        error = float((out - expected[rows]).abs().max()) / (scale or 1.0)
        worst = error if math.isnan(error) else max(worst, error)
        if math.isnan(worst):
            return worst
    return worst
