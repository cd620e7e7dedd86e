"""Plots of the records: one figure a part, as PNG and SVG."""

from io import BytesIO
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl  # type: ignore[import-not-found, unused-ignore]
from matplotlib.figure import Figure  # type: ignore[import-not-found, unused-ignore]

from dsa_cp.tools.bench.words import ORDER_NAMES
from dsa_cp.tools.whole_files import write_bytes

Records = list[dict[str, Any]]
COLORS = {"sglang": "#b3b3b3", "vllm": "#7f7f7f", "nccl": "#e0a030", "pull": "#5fa8d3", "push": "#0b5394"}
STAGE_COLORS = {"triton": "#0b5394", "flashinfer": "#e0a030"}
FLOOR = "#c0392b"


def write_plots(records: Records, folder: Path) -> list[Path]:
    """Write the plots that the records allow; returns their paths."""
    paths = []
    with mpl.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "dsa-cp"}):
        figures = {"k_tail": _tail(records), "check": _checks(records), "modes": _modes(records), "stages": _stages(records)}
        for name, figure in figures.items():
            for kind in ("png", "svg"):
                if figure is None:
                    continue
                path, drawn = folder / f"{name}.{kind}", BytesIO()
                figure.savefig(drawn, format=kind, dpi=150, bbox_inches="tight")
                write_bytes(path, drawn.getvalue())
                paths.append(path)
    return paths


def _tail(records: Records) -> Figure | None:
    """Draw the K tail over rows, one panel a mode, with the floor."""
    found = [record for record in records if record["part"] == "k_tail"]
    if not found:
        return None
    figure = Figure(figsize=(11, 8.2), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True, sharey=True)
    for line, with_index in enumerate((False, True)):
        for column, mode in enumerate(("graph", "eager")):
            axis = axes[line, column]
            chosen = [r for r in found if r["with_index"] is with_index and r["mode"] == mode]
            _draw_orders(axis, chosen)
            width = 708 if with_index else 576
            axis.set_title(f"{'graph replay' if mode == 'graph' else 'eager'}, {width} bytes a row")
    for axis in axes[1]:
        axis.set_xlabel("rows a rank")
    for axis in axes[:, 0]:
        axis.set_ylabel("us a layer (median)")
    figure.suptitle("K tail: packed rows to the KV cache of both GPUs, lower is better")
    return figure


def _draw_orders(axis: Any, chosen: Records) -> None:
    """Draw one line an order, named where it ends."""
    for order, color in COLORS.items():
        points = sorted((r["rows"], r["median_us"]) for r in chosen if r["order"] == order)
        if points:
            rows, spent = zip(*points, strict=True)
            weight = 2.6 if order == "push" else 1.6
            axis.plot(rows, spent, marker="o", markersize=4, linewidth=weight, color=color, label=ORDER_NAMES[order])
    floor = sorted({(r["rows"], r["floor_us"]) for r in chosen})
    axis.plot(*zip(*floor, strict=True), linestyle="--", color=FLOOR, label="wire floor")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    ticks = [rows for rows, _ in floor]
    axis.set_xticks(ticks, [f"{rows:,}" for rows in ticks])
    axis.minorticks_off()
    times = [1, 3, 10, 30, 100, 300]
    axis.set_yticks(times, [str(time) for time in times])
    axis.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axis.legend(frameon=False, fontsize=8)


def _checks(records: Records) -> Figure | None:
    """Draw the median over stages of what a check costs, one bar a way."""
    found = [record for record in records if record["part"] == "check" and "median_us" in record]
    if not found:
        return None
    ways = list(dict.fromkeys(record["way"] for record in found))
    costs = [median(r["median_us"] for r in found if r["way"] == way) for way in ways]
    figure = Figure(figsize=(7, 0.6 + 0.5 * len(ways)), layout="constrained")
    axis = figure.subplots()
    bars = axis.barh(ways, costs, color=["#0b5394" if way == "remembered" else "#b3b3b3" for way in ways])
    axis.bar_label(bars, [f"{cost:.1f} us" for cost in costs], padding=4)
    axis.invert_yaxis()
    axis.set_xlim(right=max(costs) * 1.2)
    axis.set_xlabel("us a call")
    axis.set_title("Contract check of one stage call, median over stages", loc="left")
    return figure


def _modes(records: Records) -> Figure | None:
    """Draw a layer's time in each mode, one panel a size."""
    found = [record for record in records if record["part"] == "modes"]
    if not found:
        return None
    sizes = list(dict.fromkeys(record["rows"] for record in found))
    figure = Figure(figsize=(8, 1.9 * len(sizes)), layout="constrained")
    for axis, size in zip(figure.subplots(len(sizes), squeeze=False)[:, 0], sizes, strict=True):
        chosen = [record for record in found if record["rows"] == size]
        names, times = [r["mode"] for r in chosen], [r["median_us"] / 1000 for r in chosen]
        bars = axis.barh(names, times, color=["#b3b3b3", "#0b5394", "#5fa8d3"][: len(chosen)])
        axis.bar_label(bars, [f"{time:.3f} ms ({time / times[0] - 1:+.2%})" for time in times], padding=6)
        axis.invert_yaxis()
        axis.set_xlim(0, max(times) * 1.45)
        axis.set_xlabel("ms a layer")
        bound = "the GPU" if size == max(sizes) else "the host"
        axis.set_title(f"{chosen[0]['layers']} layers, {size:,} tokens a rank: {bound} is busy", loc="left")
    return figure


def _stages(records: Records) -> Figure | None:
    """Draw how far each implementation of `rope_quantize` and `write_kv` is above its floor."""
    found = [r for r in records if r["part"] == "stage" and r["stage"] in ("rope_quantize", "write_kv")]
    found = [record for record in found if record["implementation"] in STAGE_COLORS]
    if not found:
        return None
    cases = list(dict.fromkeys((record["stage"], record["case"]) for record in found))
    ways = [way for way in STAGE_COLORS if any(record["implementation"] == way for record in found)]
    ratios = {(r["stage"], r["case"], r["implementation"]): r["ratio"] for r in found}
    figure = Figure(figsize=(9, 0.9 + 0.36 * len(cases)), layout="constrained")
    axis = figure.subplots()
    for at, way in enumerate(ways):
        points = [(line, ratios[(*case, way)]) for line, case in enumerate(cases) if (*case, way) in ratios]
        lines, values = zip(*points, strict=True)
        axis.scatter(values, lines, s=46, color=STAGE_COLORS[way], label=way, zorder=3 - at)
    axis.axvline(1.0, linestyle="--", color=FLOOR, label="floor: bytes over copy bandwidth")
    axis.set_yticks(range(len(cases)), [f"{stage}  {case}" for stage, case in cases])
    axis.invert_yaxis()
    axis.set_xlim(left=0.9)
    axis.grid(axis="x", color="#e6e6e6", linewidth=0.8)
    axis.set_xlabel("time / floor, graph replay")
    axis.set_title("Stages against the memory floor, lower is better", loc="left")
    axis.legend(frameon=False, fontsize=8)
    return figure
