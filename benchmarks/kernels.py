"""Measure every kernel case on this GPU and print a table: `PYTHONPATH=src:. python benchmarks/kernels.py [results.json]`.

Each figure is the median of 15 replays of a CUDA graph that holds at least 8 launches over rotating inputs. Floors are the
bytes that must move over the bandwidth of a 2 GiB copy in the same run; the copy is launched eagerly, since a copy node of a
graph moved a third less on an H200.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

from dsa_cp.bench.facts import run_facts
from dsa_cp.bench.kernel_cases import KernelCase, kernel_cases


def copy_bandwidth() -> float:
    """Return bytes a microsecond, read and written, of a 2 GiB copy."""
    source = torch.randn(1 << 29, device="cuda")
    target = torch.empty_like(source)
    samples = [elapsed(lambda: target.copy_(source)) for _ in range(12)][2:]
    return 2 * source.numel() * 4 / median(samples)


def elapsed(call: Callable[[], object]) -> float:
    """Return the microseconds of one call on the device."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3


def replay_times(step: Callable[[int], object], launches: int) -> list[float]:
    """Return the microseconds a launch of 15 replays, after warm-up."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for at in range(2):
            step(at)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for at in range(launches):
            step(at)
    for _ in range(3):
        graph.replay()
    return sorted(elapsed(graph.replay) / launches for _ in range(15))


def measure(case: KernelCase, bandwidth: float) -> list[dict[str, object]]:
    """Return and print one record for each implementation of a case."""
    floor = case.bytes_moved / bandwidth
    records = []
    for name, step in case.steps.items():
        times = replay_times(step, 1 if case.operations > 1e12 else 24 if case.bytes_moved < 1e8 else 8)
        rate = case.operations / times[7] * 1e-6
        shown = f"{rate:7.1f} TFLOP/s" if case.operations else f"{times[7] / floor:7.3f} x floor"
        spread = f"({times[1]:.2f}-{times[13]:.2f})"
        print(
            f"{case.stage:15} {case.case:38} {name:11} {times[7]:9.2f} us {spread:19} floor {floor:8.2f} {shown}", flush=True
        )
        record = {"stage": case.stage, "case": case.case, "implementation": name, "median_us": times[7], "p10_us": times[1]}
        work = {"p90_us": times[13], "floor_us": floor, "bytes": case.bytes_moved, "operations": case.operations}
        records.append({**record, **work})
    return records


def main() -> None:
    """Print the facts of the run and all cases; write them as JSON where a path is given."""
    facts = {**run_facts(), "command": " ".join(sys.argv)}
    print(json.dumps(facts))
    bandwidth = copy_bandwidth()
    print(f"copy of 2 GiB: {bandwidth * 1e-6:.3f} TB/s read and written")
    records: list[dict[str, object]] = [facts, {"copy_tb_s": bandwidth * 1e-6}]
    for case in kernel_cases():
        records += measure(case, bandwidth)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()
