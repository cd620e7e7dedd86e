"""`dsa-cp plan`: where K is rotated, quantised and gathered for given backends, why, and how sglang decides."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.dsa.codes import PlanError
from dsa_cp.cli.options import Group
from dsa_cp.cli.output import print_error, print_json, print_line
from dsa_cp.planner.backends import CAPABILITIES, Capability
from dsa_cp.planner.choice import Cost
from dsa_cp.planner.compare import KINDS, Comparison, compare
from dsa_cp.planner.making import make
from dsa_cp.planner.options import PlanOptions
from dsa_cp.planner.plan import Plan
from dsa_cp.planner.reading import first_fault
from dsa_cp.planner.registry import read_capabilities
from dsa_cp.planner.search import RULES
from dsa_cp.planner.table import plans_page

HELP = """Plan where K is rotated, quantised and gathered for two backends and a layout, from their capabilities and the
contracts of the stages. Exit code 1: there is no plan; the error says which capability is missing."""
EXAMPLE = "Example: dsa-cp plan --prefill-backend trtllm --layout zigzag --kv-format fp8 --cp-size 4 --compare upstream"


class Pool(StrEnum):
    """What a rank's pool holds."""

    REPLICATED = "replicated"
    SHARDED = "sharded"


class Phase(StrEnum):
    """Which backend runs."""

    PREFILL = "prefill"
    DECODE = "decode"


class Other(StrEnum):
    """Whom to compare with."""

    UPSTREAM = "upstream"


def command(
    prefill_backend: Annotated[str, typer.Option(help="Backend of prefill: " + ", ".join(CAPABILITIES) + ".")] = "trtllm",
    decode_backend: Annotated[str | None, typer.Option(help="Backend of decode; default: that of prefill.")] = None,
    layout: Annotated[str, typer.Option(help="zigzag, interleave, interleave(block=64), vllm_zigzag.")] = "zigzag",
    kv_format: Annotated[str, typer.Option(help="Row format of the pool: bf16, fp8, fp8_656.")] = "fp8",
    cp_size: Annotated[int, typer.Option(help="Ranks.")] = 4,
    prefix: Annotated[bool, typer.Option(help="Requests may have tokens in the pool already.")] = True,
    pool: Annotated[Pool, typer.Option(help="Every rank's pool holds all rows, or its share.")] = Pool.REPLICATED,
    phase: Annotated[Phase, typer.Option(help="The phase to plan.")] = Phase.PREFILL,
    comm: Annotated[Group, typer.Option(help="Whether ranks reach each other's memory.")] = Group.COLLECTIVE,
    device: Annotated[str | None, typer.Option(help="Compute capability (10.0) or architecture (gfx950) to check.")] = None,
    num_heads: Annotated[int | None, typer.Option(help="Query heads on a rank, to check.")] = None,
    index_topk: Annotated[int | None, typer.Option(help="Width of the top-k indices, to check.")] = None,
    page_size: Annotated[int | None, typer.Option(help="Slots of a page, to check.")] = None,
    block_table_width: Annotated[int | None, typer.Option(help="Pages of a block table row, to check.")] = None,
    metadata: Annotated[list[str] | None, typer.Option(help="A field that the engine builds; name all, to check.")] = None,
    capabilities: Annotated[Path | None, typer.Option(help="JSON or TOML file of further backends.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Why each alternative lost, and sources.")] = False,
    compare_: Annotated[Other | None, typer.Option("--compare", help="How sglang 0.5.15 and 0.5.23 decide.")] = None,
    table: Annotated[
        bool, typer.Option("--table", help="All combinations, as Markdown; other options do not count.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> int:
    """Plan; see HELP."""
    if table:
        print_line(plans_page().rstrip("\n"))
        return 0
    known = CAPABILITIES if capabilities is None else read_capabilities(capabilities)
    given: dict[str, Any] = {
        "prefill_backend": prefill_backend,
        "decode_backend": decode_backend or prefill_backend,
        "layout": layout,
        "kv_format": kv_format,
        "cp_size": cp_size,
        "prefix": prefix,
        "pool": pool.value,
        "phase": phase.value,
        "comm": comm.value,
        "device": device,
        "num_heads": num_heads,
        "index_topk": index_topk,
        "page_size": page_size,
        "block_table_width": block_table_width,
        "metadata": tuple(metadata) if metadata else None,
    }
    options = _options(given)
    made = _make(options, known)
    comparisons = compare(made, options, known) if compare_ is not None else ()
    if json:
        _print_objects(made, comparisons)
    else:
        _print_texts(made, comparisons, explain=explain)
    return 1 if isinstance(made, PlanError) else 0


def _options(given: dict[str, Any]) -> PlanOptions:
    """Return the options; raises ArgumentError DSA602 where one is not legal."""
    try:
        return PlanOptions(**given)
    except ValidationError as error:
        raise ArgumentError(first_fault(error)) from error


def _make(options: PlanOptions, known: Mapping[str, Capability]) -> Plan | PlanError:
    """Return the plan, or the error that there is none."""
    try:
        return make(options, known)
    except PlanError as error:
        return error


def _print_objects(made: Plan | PlanError, comparisons: tuple[Comparison, ...]) -> None:
    """Print the plan or its error, then each comparison, one object a line."""
    if isinstance(made, PlanError):
        print_json({"kind": "dsa-cp plan error", "code": made.code, "headline": made.headline, "facts": list(made.facts)})
    else:
        print_json(made.model_dump(mode="json"))
    for found in comparisons:
        print_json({"kind": "dsa-cp comparison", "with": f"sglang {found.version}", **_plain(found)})


def _plain(found: Comparison) -> dict[str, object]:
    shown = {"result": found.kind, "upstream": found.upstream, "reason": found.reason, "source": found.source}
    return {**shown, "notes": list(found.notes)}


def _print_texts(made: Plan | PlanError, comparisons: tuple[Comparison, ...], *, explain: bool) -> None:
    """Print the plan as a table and its decisions, or its error; then the comparisons."""
    if isinstance(made, PlanError):
        print_error(str(made))
    else:
        _print_plan(made, explain=explain)
    for found in comparisons:
        reason = f"; {found.reason}" if found.reason else ""
        print_line(f"sglang {found.version}: {found.kind} ({KINDS[found.kind]}){reason}")
        print_line(f"  it decides  {found.upstream}")
        print_line(f"  source      {found.source}")
        for note in found.notes:
            print_line(f"  note        {note}")


def _print_plan(plan: Plan, *, explain: bool) -> None:
    """Print the table of stages, then the decisions."""
    headers = ["stage", "rows", "order", "RoPE", "dtype", "strides", "bytes per token", "cost"]
    rows = [
        [step.stage, step.rows, step.order, step.rope, step.dtype, step.strides, str(step.bytes_per_token), step.effect]
        for step in plan.steps
    ]
    options = plan.options
    setting = f"{options.phase}, {options.layout}, cp_size {options.cp_size}, {options.pool} pool"
    print_line(f"{plan.name} ({setting}): K after each stage\n")
    for line in aligned([headers, *rows], right=headers.index("bytes per token")):
        print_line(line)
    print_line("")
    for decision in plan.decisions:
        print_line(f"{decision.what:<15} {decision.value}: {decision.reason}")
        if explain and decision.source:
            print_line(f"{'':<15} source: {decision.source}")
    print_line(f"{'cost':<15} {_cost(plan)}")
    print_line(f"{'metadata':<15} {', '.join(need.field for need in plan.metadata)}")
    if explain:
        _print_reasons(plan)


def aligned(rows: list[list[str]], *, right: int) -> list[str]:
    """Return rows as lines of columns that are never folded, so that a pipe gets whole words; one stands to the right."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return [
        "  ".join(
            cell.rjust(width) if at == right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _cost(plan: Plan) -> str:
    """Return the plan's cost in words."""
    cost = plan.cost
    return Cost(cost.wire_bytes, cost.all_row_passes, cost.own_row_passes).describe()


def _print_reasons(plan: Plan) -> None:
    """Print what the metadata is for, why the alternatives lost, and what the search leaves out."""
    for need in plan.metadata:
        print_line(f"needs {need.field}: {need.purpose} ({need.source})")
    for lost in plan.rejected:
        print_line(f"lost  {lost.placement}: {lost.reason}")
    for rule, why in RULES.items():
        print_line(f"rule  {rule}: {why}")
