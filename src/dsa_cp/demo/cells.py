"""The cells of a run: each layout with each row format, on many ranks, against one rank."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from dsa_contracts import Layout
from dsa_cp.comm import run_ranks
from dsa_cp.demo.compare import (
    RankVerdict,
    Reference,
    compare_with_one_gpu,
    json_number,
    make_reference,
    run_and_compare,
    worst_error,
)
from dsa_cp.demo.run import Job, Progress, alone
from dsa_cp.demo.schedule import Schedule
from dsa_cp.layer.models import ModelDims
from dsa_cp.layouts import Interleave
from dsa_cp.planner import CommKind, Plan, make_plan

QUANT_SCALE = 2.0
"""Scale of flat e4m3 rows in a run: not 1, so that a scale which is forgotten or applied twice shows."""

GPU_PATIENCE_S = 120.0
"""How long ranks on GPUs wait for each other: each runs the whole job alone before it comes to the first collective."""

BACKENDS = {"bf16": "flashmla_sparse", "fp8": "trtllm", "fp8_656": "flashmla_kv"}
"""The backend whose capabilities decide the plan of each row format; the stages' references do the work."""


@dataclass(frozen=True)
class RunSpec:
    """What to run.

    Attributes:
        model: the model's dims.
        schedule: the prefill batches.
        cp_size: ranks.
        num_layers: layers.
        seed: seed of the inputs.
        in_processes: whether each rank is a process of its own instead of a thread.
        device: where to run: `cpu`, or `cuda`, where rank r of the processes is on GPU r.
        kernels: name of the kernel set, see `dsa_cp.layer.kernel_sets`.
        comm: whether a gather lands in new memory or may go straight into the pools of all ranks. GPUs then reach each
            other's memory; on a CPU the stage that does both gathers and writes.
    """

    model: ModelDims
    schedule: Schedule
    cp_size: int
    num_layers: int
    seed: int = 0
    in_processes: bool = False
    device: str = "cpu"
    kernels: str = "torch"
    comm: CommKind = "collective"

    @property
    def is_on_gpus(self) -> bool:
        """Whether each rank is a process with a GPU of its own."""
        return self.in_processes and self.device != "cpu"


@dataclass(frozen=True)
class CellReport:
    """What one cell has shown; the fields are the keys of `--json`."""

    layout: str
    kv_format: str
    cp_size: int
    comm: str
    batches: int
    tokens: int
    layers: int
    stages_checked: int
    checks_run: int
    unknown_arguments: int
    kv_bytes_equal: bool
    kv_sha256: str
    differing_slots: int
    first_difference: str
    output_equal: bool
    output_max_error: float
    output_bound: float
    kernels: str
    plan: str
    gather_after: str
    reason: str

    def as_json(self) -> dict[str, object]:
        """Return the report as one object; an error that is not finite is given as text."""
        return {**asdict(self), "output_max_error": json_number(self.output_max_error)}


def make_job(spec: RunSpec, layout: Layout, plan: Plan) -> Job:
    """Return the job of one cell."""
    where = spec.num_layers, spec.seed, spec.device, spec.kernels
    return Job(spec.model, spec.schedule, layout, plan, *where, layer_quant_scale=QUANT_SCALE)


def reference_for(spec: RunSpec, plan: Plan, progress: Progress | None = None) -> Reference:
    """Run one rank, whose local order is the sequence order."""
    job = alone(make_job(spec, Interleave(), plan))
    with _threads(torch.get_num_threads()):
        return run_ranks(1, lambda comm: make_reference(comm, job, progress))[0]


def verdicts_of(spec: RunSpec, job: Job, reference: Reference | None, progress: Progress | None = None) -> list[RankVerdict]:
    """Run a job on all ranks and compare each with the reference; None: each on a GPU of its own, with a run of its own."""
    if reference is None or spec.in_processes:
        from dsa_cp.comm.process import run_processes

        if reference is None:
            return run_processes(spec.cp_size, compare_with_one_gpu, job, device=spec.device, timeout_s=GPU_PATIENCE_S)
        with tempfile.TemporaryDirectory(prefix="dsa-cp-") as folder:
            path = Path(folder) / "reference.pt"
            reference.save(path)
            return run_processes(spec.cp_size, run_and_compare, job, path)
    with _threads(1):
        return run_ranks(spec.cp_size, lambda comm: run_and_compare(comm, job, reference, progress))


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Let torch use `count` threads an operation: ranks in threads share the machine already."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_cells(
    spec: RunSpec,
    layouts: tuple[Layout, ...],
    kv_formats: tuple[str, ...],
    on_step: Callable[[str, int, int], None] = lambda label, done, steps: None,
) -> Iterator[CellReport]:
    """Yield a report for each layout and row format, row format by row format.

    Args:
        spec: what to run.
        layouts: layouts to run.
        kv_formats: row formats to run.
        on_step: called with a label, the steps done and the steps in all, while a cell runs.

    Raises:
        ContractError: a violated contract, with what and where; RankError where it was on some ranks only.
    """
    for kv_format in kv_formats:
        backend, size = BACKENDS[kv_format], spec.cp_size
        plan = make_plan(backend, kv_format, cp_size=1)
        reference = None
        if not spec.is_on_gpus:
            reference = reference_for(spec, plan, _labelled(on_step, f"one rank, {kv_format}"))
        for layout in layouts:
            plan = make_plan(backend, kv_format, layout=layout.name, cp_size=size, comm=spec.comm)
            job = make_job(spec, layout, plan)
            label = f"{spec.cp_size} ranks, {layout.name}, {kv_format}"
            yield report_of(spec, job, verdicts_of(spec, job, reference, _labelled(on_step, label)))


def _labelled(on_step: Callable[[str, int, int], None], label: str) -> Progress:
    return lambda done, steps: on_step(label, done, steps)


def report_of(spec: RunSpec, job: Job, verdicts: list[RankVerdict]) -> CellReport:
    """Return the report of a cell from what its ranks found; the worst rank speaks for all."""
    plan = job.plan
    return CellReport(
        layout=job.layout.name,
        kv_format=plan.row_format,
        cp_size=spec.cp_size,
        comm=spec.comm,
        batches=len(spec.schedule.batches),
        tokens=sum(batch.nnz for batch in spec.schedule.batches),
        layers=spec.num_layers,
        stages_checked=sum(verdict.calls for verdict in verdicts),
        checks_run=sum(verdict.checks for verdict in verdicts),
        unknown_arguments=sum(verdict.unknown for verdict in verdicts),
        kv_bytes_equal=all(verdict.differing_slots == 0 for verdict in verdicts),
        kv_sha256=verdicts[0].digest,
        differing_slots=max(verdict.differing_slots for verdict in verdicts),
        first_difference=next((v.first_difference for v in verdicts if v.first_difference), ""),
        output_equal=all(verdict.output_equal for verdict in verdicts),
        output_max_error=worst_error(verdicts),
        output_bound=verdicts[0].bound,
        kernels=job.kernels,
        plan=plan.name,
        gather_after=plan.gather_after,
        reason=plan.reason,
    )
