"""`dsa-cp run`: real requests through the path on several ranks, compared with one rank."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import torch
import typer

from dsa_contracts import Mode
from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.core.modes import mode_from_environment
from dsa_cp.cli.command_options import GroupChoice
from dsa_cp.cli.output import print_json, print_line, print_table, progress_bar
from dsa_cp.demo.break_report import BreakReport, run_breakages
from dsa_cp.demo.breakages import BREAKAGES, breakage_by_name
from dsa_cp.demo.cells import CellReport, RunSpec, run_cells
from dsa_cp.demo.compare import output_bound
from dsa_cp.demo.schedule import build_schedule
from dsa_cp.demo.trace import default_trace, read_trace
from dsa_cp.layer.kernel_sets import KERNEL_SETS, available_on
from dsa_cp.layer.models import model_by_name
from dsa_cp.layouts import layout_by_name, layout_choices

HELP = """Run prefill batches of real requests through the attention path on several ranks, and compare KV cache bytes and
attention output with one rank."""
EXAMPLE = "Example: dsa-cp run --trace requests.jsonl --cp-size 4 --layers 2 --json"

MAX_SIMULATED = 64
"""Ranks that one machine simulates; more is refused instead of started."""


class Ranks(StrEnum):
    """How ranks are run."""

    THREAD = "thread"
    PROCESS = "process"


def command(
    trace: Annotated[
        Path | None, typer.Option(help="Requests, one JSON object a line; default: a trace in the package.")
    ] = None,
    model: Annotated[str, typer.Option(help="default, deepseek-v3.2, glm-5 or tiny.")] = "default",
    cp_size: Annotated[int, typer.Option(help="Ranks.")] = 4,
    layers: Annotated[int, typer.Option(help="Layers.")] = 2,
    batches: Annotated[int, typer.Option(help="Prefill batches to run, at most; 0: all of the trace.")] = 2,
    requests: Annotated[int, typer.Option(help="Requests to read, at most; 0: all of the trace.")] = 0,
    chunk_tokens: Annotated[int, typer.Option(help="New tokens of a prefill batch, at most.")] = 8192,
    page_size: Annotated[int, typer.Option(help="Slots of a KV page.")] = 64,
    layout: Annotated[list[str] | None, typer.Option(help=f"{layout_choices()}.")] = None,
    kv_format: Annotated[list[str] | None, typer.Option(help="bf16, fp8, fp8_656.")] = None,
    ranks: Annotated[Ranks, typer.Option(help="Ranks as threads of this process, or as processes.")] = Ranks.THREAD,
    device: Annotated[str, typer.Option(help="cpu, or cuda: with processes, a GPU a rank.")] = "cpu",
    comm: Annotated[
        GroupChoice,
        typer.Option(help="symmetric: gathers go straight into the pools of all ranks, where the plan allows it."),
    ] = GroupChoice.COLLECTIVE,
    kernels: Annotated[str, typer.Option(help="Implementations of the stages: torch, triton, flash_mla, ...")] = "torch",
    seed: Annotated[int, typer.Option(help="Seed of the inputs.")] = 0,
    break_: Annotated[str, typer.Option("--break", help="Run a known wrong order instead; 'list' names them.")] = "",
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> int:
    """Run the path; see HELP."""
    if break_ == "list":
        return _list_breakages(as_json=json)
    breakage = breakage_by_name(break_) if break_ else None
    if breakage is not None:
        _can_break(ranks, comm)
    _known_device(device, kernels)
    _check_counts(cp_size, layers, batches, requests)
    dims = model_by_name(model)
    layouts = tuple(layout_by_name(name) for name in layout or ["zigzag", "interleave"])
    formats = tuple(kv_format or ["bf16", "fp8"])
    _known_formats(formats)
    found = read_trace(trace, requests or None) if trace else default_trace()[: requests or None]
    chosen = batches or None
    schedule = build_schedule(found, chunk_tokens=chunk_tokens, page_size=page_size, max_batches=chosen, seed=seed)
    spec = RunSpec(dims, schedule, cp_size, layers, seed, ranks is Ranks.PROCESS, device, kernels, comm.value)
    if breakage is not None:
        return _report_breakages(run_breakages(spec, layouts, breakage), as_json=json)
    reports = []
    with progress_bar(enabled=not json) as on_step:
        for report in run_cells(spec, layouts, formats, on_step):
            reports.append(report)
            if json:
                print_json(report.as_json())
    if not json:
        _print_cells(spec, reports)
    return 0 if all(report.kv_bytes_equal and report.output_equal for report in reports) else 1


def _at_least(flag: str, value: int, least: int) -> None:
    """Raise ArgumentError DSA602 where a number is too small."""
    if value < least:
        raise ArgumentError(f"{flag} is {value}; it must be at least {least}")


def _can_break(ranks: Ranks, comm: GroupChoice) -> None:
    """Raise ArgumentError DSA602 where checks cannot be switched off and on for comparison."""
    if comm is not GroupChoice.COLLECTIVE:
        raise ArgumentError("--break runs orders of a collective; leave out --comm")
    if ranks is Ranks.PROCESS:
        raise ArgumentError("--break switches checks off and on in one process; leave out --ranks process")
    if mode_from_environment() is not Mode.DEVELOPMENT:
        raise ArgumentError("--break compares checks off, development and values; leave DSA_CONTRACTS unset")


def _check_counts(cp_size: int, layers: int, batches: int, requests: int) -> None:
    """Raise ArgumentError DSA602 where a number is too small, or too many ranks are asked for."""
    _at_least("--cp-size", cp_size, 1)
    _at_least("--layers", layers, 1)
    _at_least("--batches", batches, 0)
    _at_least("--requests", requests, 0)
    if cp_size > MAX_SIMULATED:
        raise ArgumentError(f"--cp-size is {cp_size}; this machine runs up to {MAX_SIMULATED} ranks")


def _known_device(device: str, kernels: str) -> None:
    """Raise ArgumentError DSA602 where a device or a kernel set is not known, or not there."""
    if device not in ("cpu", "cuda"):
        raise ArgumentError(f"--device {device!r} is not known; known are cpu, cuda")
    if kernels not in KERNEL_SETS:
        raise ArgumentError(f"--kernels {kernels!r} is not known; known are {', '.join(KERNEL_SETS.known())}")
    if device == "cuda" and not torch.cuda.is_available():
        raise ArgumentError("--device cuda: this machine has no CUDA device")
    reason = available_on(torch.device(device)).get(kernels, "")
    if reason:
        raise ArgumentError(f"--kernels {kernels} with --device {device}: {reason}")


def _known_formats(formats: tuple[str, ...]) -> None:
    """Raise ArgumentError DSA602 where a row format is not known."""
    for name in formats:
        if name not in ("bf16", "fp8", "fp8_656"):
            raise ArgumentError(f"--kv-format {name!r} is not known; known are bf16, fp8, fp8_656")


def _list_breakages(*, as_json: bool) -> int:
    """Print the names of the breakages, one a line."""
    for breakage in BREAKAGES.values():
        if as_json:
            print_json({"name": breakage.name, "what": breakage.what, "source": breakage.source})
        else:
            print_line(f"{breakage.name:<18} {breakage.what} ({breakage.source})")
    return 0


def _print_cells(spec: RunSpec, reports: list[CellReport]) -> None:
    """Print the table of cells, then where the gather went and why."""
    headers = ["cell", "batches", "tokens", "stages\nchecked", "checks\nrun", "KV\nbytes", "output\nerror"]
    rows = []
    for report in reports:
        kv = "equal" if report.kv_bytes_equal else f"{report.differing_slots} slots differ: {report.first_difference}"
        exact = "equal" if report.output_max_error == 0.0 else f"{report.output_max_error:.1e}"
        out = exact if report.output_equal else f"DIFFERS {exact}"
        counts = [report.batches, report.tokens, report.stages_checked, report.checks_run]
        cell = f"{report.layout} {report.kv_format}"
        rows.append([cell, *(f"{count:,}" for count in counts), kv, out])
    title = f"{spec.cp_size} ranks against one rank: model {spec.model.name}, {spec.num_layers} layer(s)"
    print_table(title, headers, rows, numeric=frozenset(headers[1:5]))
    print_line(
        f"output error: equal, or the largest difference / largest output of one rank; up to {output_bound(spec.kernels):.0e}"
    )
    print_line("              is passed, since float32 sums may run in another order where a rank has fewer rows")
    for reason in dict.fromkeys((report.kv_format, report.gather_after, report.reason) for report in reports):
        print_line(f"gather: {reason[0]}, after {reason[1]}: {reason[2]}")
    unknown = sum(report.unknown_arguments for report in reports)
    print_line(f"unknown: {unknown} arguments carried no brand, so that nothing but their shape was known")


def _report_breakages(reports: list[BreakReport], *, as_json: bool) -> int:
    """Print what a breakage did with checks off and on; 0 where every layout refused it."""
    if as_json:
        for report in reports:
            print_json(report.as_json())
    else:
        rows = []
        for report in reports:
            off = f"crash: {report.crash}" if report.crash else ""
            if report.output_error is not None:
                off = f"runs; output differs by {report.output_error:.3g}, {report.differing_slots} pool slots differ"
            on = f"{report.code} in {report.refused_in} mode: {report.refusal}" if report.code else "NOT REFUSED"
            rows.append([report.layout, off, on])
        breakage = BREAKAGES[reports[0].name]
        print_table(f"{breakage.name}: {breakage.what} ({breakage.source})", ["layout", "checks off", "checks on"], rows)
    return 0 if all(report.is_caught for report in reports) else 1
