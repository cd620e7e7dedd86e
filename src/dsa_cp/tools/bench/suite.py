"""Which parts there are, what each needs, and running them in one go."""

import torch

from dsa_contracts.core.errors import ArgumentError
from dsa_cp.tools.bench.check_costs import measure_checks
from dsa_cp.tools.bench.facts import run_facts
from dsa_cp.tools.bench.host import measure_host

ROWS = (512, 2048, 8192, 16384, 32768)
PARTS = ("check", "host", "modes", "stages", "k_tail")
ON_CPU = ("check", "host")
GROUP = 2
"""Ranks of the parts that need several GPUs."""

Records = list[dict[str, object]]


def parts_to_run(parts: list[str] | None, *, cpu_only: bool) -> list[str]:
    """Return which parts to run; None stands for all that can run here.

    Raises:
        ArgumentError: DSA602, a part needs GPUs that this machine does not have, or that are not to be used.
    """
    chosen = list(parts or (ON_CPU if cpu_only else PARTS))
    needy = [name for name in chosen if name not in ON_CPU]
    if needy and cpu_only:
        raise ArgumentError(f"--cpu leaves out {', '.join(needy)}; without a GPU there are {', '.join(ON_CPU)}")
    if needy and not torch.cuda.is_available():
        raise ArgumentError(f"no CUDA device: {', '.join(needy)} need one; --cpu runs {', '.join(ON_CPU)}")
    return chosen


def run_parts(parts: list[str], *, cpu_only: bool, rows: tuple[int, ...], seed: int) -> Records:
    """Run parts in one go and return their records, the facts of the run first.

    Args:
        parts: which, as `parts_to_run` returns them.
        cpu_only: use no GPU.
        rows: rows a rank of the K tail; empty for the default ones.
        seed: seed of the rows.

    Raises:
        ArgumentError: DSA602, the K tail needs more GPUs.
    """
    records: Records = [run_facts()]
    for name in parts:
        records += _run(name, rows or ROWS, seed, "cpu" if cpu_only or not torch.cuda.is_available() else "cuda")
    return records


def _run(name: str, rows: tuple[int, ...], seed: int, device: str) -> Records:
    """Run one part."""
    if name == "check":
        return measure_checks()
    if name == "host":
        return measure_host(torch.device(device))
    if name == "stages":
        from dsa_cp.tools.bench.stage_times import measure_stages

        return measure_stages()
    from dsa_cp.comm.process import run_processes

    size = min(torch.cuda.device_count(), GROUP)
    if name == "modes":
        from dsa_cp.tools.bench.layers import measure_modes

        return measure_modes(size)
    if size < GROUP:
        raise ArgumentError(f"k_tail needs {GROUP} GPUs; this machine has {size}")
    from dsa_cp.tools.bench.tail import measure_tail

    return slowest(run_processes(size, measure_tail, rows, seed, device="cuda", timeout_s=60.0))


def slowest(ranks: list[Records]) -> Records:
    """Return one list of records from those of all ranks: of each, the one of the rank that took longest."""
    return [max(found, key=lambda record: float(str(record.get("median_us", 0)))) for found in zip(*ranks, strict=True)]
