"""Each stage that has a kernel against its floor: the bytes it must move over the copy bandwidth of the same run."""

from collections.abc import Iterable
from functools import partial

import torch

from dsa_cp.tools.bench.kernel_cases import KernelCase, Launch, kernel_cases
from dsa_cp.tools.bench.measure import WARM_UPS, Timing, capture, time_events, time_graph

COPY_BYTES = 1 << 31
LONG_OPERATIONS = 1e12
SMALL_BYTES = 1e8


def measure_stages(cases: Iterable[KernelCase] | None = None) -> list[dict[str, object]]:
    """Return records of the stages on one GPU, with their floors: one for each case and implementation.

    Args:
        cases: what to measure; None for all.
    """
    source = torch.randint(0, 256, (COPY_BYTES,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    # Not in a graph: a copy node of a graph moves about two thirds of what the same copy moves by itself.
    copied = time_events(partial(target.copy_, source))
    rate = 2 * COPY_BYTES / copied.median_us / 1e3
    del source, target
    records: list[dict[str, object]] = [{"part": "copy", "local_gb_s": round(rate, 1), **copied.as_json()}]
    for case in kernel_cases() if cases is None else cases:
        floor = case.bytes_moved / rate / 1e3
        for implementation, step in case.steps.items():
            timing = _timed(step, _launches(case))
            record = {"part": "stage", "stage": case.stage, "case": case.case, "implementation": implementation}
            work = {"bytes": case.bytes_moved, "operations": case.operations, "floor_us": round(floor, 2)}
            records.append({**record, **timing.as_json(), **work, "ratio": round(timing.median_us / floor, 3)})
    return records


def _launches(case: KernelCase) -> int:
    """Return how many launches one graph holds: so many that a replay takes far longer than it takes to start."""
    if case.operations > LONG_OPERATIONS:
        return 1
    return 24 if case.bytes_moved < SMALL_BYTES else 8


def _timed(step: Launch, launches: int) -> Timing:
    """Time a launch inside a graph: by itself, a kernel of some microseconds takes as long as its launch on the host."""
    for at in range(WARM_UPS):
        step(at)
    return time_graph(capture(step, launches), torch.cuda.synchronize, steps=launches)
