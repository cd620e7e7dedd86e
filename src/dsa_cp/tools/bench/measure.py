"""How times are taken: warm-up first, many repetitions, the median with the tenth and ninetieth percentile."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

WARM_UPS = 4


@dataclass(frozen=True)
class Timing:
    """Microseconds a call, over repetitions.

    Attributes:
        median_us: the middle one.
        p10_us: a tenth were faster.
        p90_us: a tenth were slower.
        repetitions: how many.
    """

    median_us: float
    p10_us: float
    p90_us: float
    repetitions: int

    def as_json(self) -> dict[str, object]:
        """Return the fields, rounded to a nanosecond."""
        times = {"median_us": self.median_us, "p10_us": self.p10_us, "p90_us": self.p90_us}
        return {**{name: round(value, 3) for name, value in times.items()}, "repetitions": self.repetitions}


def timing_of(samples_us: list[float]) -> Timing:
    """Return the summary of samples; at least one."""
    ordered = sorted(samples_us)
    count = len(ordered)
    return Timing(ordered[count // 2], ordered[count // 10], ordered[count - 1 - count // 10], count)


def time_host(call: Callable[[], object], *, calls: int = 1000, repetitions: int = 15) -> Timing:
    """Time a call that does nothing on a device: each repetition is the mean of many calls."""
    samples = []
    for repetition in range(repetitions + 2):
        started = time.perf_counter()
        for _ in range(calls):
            call()
        if repetition >= 2:
            samples.append((time.perf_counter() - started) / calls * 1e6)
    return timing_of(samples)


def time_eager(step: Callable[[int], None], align: Callable[[], None], *, steps: int = 20, repetitions: int = 9) -> Timing:
    """Time `step(i)` as an engine without graphs would see it: launched one after the other, the last one waited for.

    Args:
        step: launches one layer's work.
        align: brings all ranks to one point; called before each repetition.
        steps: layers a repetition.
        repetitions: samples.
    """
    for at in range(WARM_UPS):
        step(at)
    samples = []
    for _ in range(repetitions):
        torch.cuda.synchronize()
        align()
        started = time.perf_counter()
        for at in range(steps):
            step(at)
        torch.cuda.synchronize()
        samples.append((time.perf_counter() - started) / steps * 1e6)
    return timing_of(samples)


def capture(step: Callable[[int], object], steps: int) -> torch.cuda.CUDAGraph:
    """Return a graph of `steps` layers; all kernels must have run once."""
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=torch.cuda.Stream()):  # type: ignore[no-untyped-call]
        for at in range(steps):
            step(at)
    return graph


def _events() -> tuple[torch.cuda.Event, torch.cuda.Event]:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    return begin, end


def time_events(step: Callable[[], object], *, repetitions: int = 15) -> Timing:
    """Time one launch with device events, outside of graphs; for steps that take far longer than their launch."""
    samples = []
    for repetition in range(repetitions + 2):
        begin, end = _events()
        begin.record()
        step()
        end.record()
        end.synchronize()
        if repetition >= 2:
            samples.append(begin.elapsed_time(end) * 1000)
    return timing_of(samples)


def time_graph(graph: torch.cuda.CUDAGraph, align: Callable[[], None], *, steps: int, repetitions: int = 15) -> Timing:
    """Time replays of a graph of `steps` layers with device events; microseconds a layer."""
    samples = []
    for repetition in range(repetitions + 2):
        align()
        begin, end = _events()
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        if repetition >= 2:
            samples.append(begin.elapsed_time(end) * 1000 / steps)
    return timing_of(samples)
