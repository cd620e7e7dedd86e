"""`dsa-cp bench`: figures side by side, as a table, JSON lines and plots."""

from pathlib import Path
from typing import Annotated

import typer

from dsa_contracts.core.errors import ArgumentError
from dsa_cp.cli.bench_tables import print_report
from dsa_cp.cli.output import print_json, print_line
from dsa_cp.tools.bench.suite import PARTS, parts_to_run, run_parts
from dsa_cp.tools.whole_files import make_folder

HELP = """Measure the path side by side in one run: the K tail in five orders, each stage against its floor, host time,
development against production mode, and the contract check against other checkers."""
EXAMPLE = "Example: dsa-cp bench --part check --cpu --json"


def command(
    part: Annotated[list[str] | None, typer.Option(help=f"{', '.join(PARTS)}; default: all that can run.")] = None,
    cpu: Annotated[bool, typer.Option("--cpu", help="Only the parts that need no GPU.")] = False,
    rows: Annotated[list[int] | None, typer.Option(help="Rows a rank of the K tail.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for results.jsonl and the plots.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the rows.")] = 0,
) -> int:
    """Measure; see HELP."""
    for name in part or ():
        if name not in PARTS:
            raise ArgumentError(f"--part {name!r} is not known; known are {', '.join(PARTS)}")
    for count in rows or ():
        if count < 2 or count % 2:
            raise ArgumentError(f"--rows is {count}; it must be an even number of at least 2")
    chosen = parts_to_run(part, cpu_only=cpu)
    if out is not None:
        make_folder(out)
    records = run_parts(chosen, cpu_only=cpu, rows=tuple(rows or ()), seed=seed)
    if out is not None:
        from dsa_cp.tools.bench.files import write_results

        written = write_results(records, out)
        for path in written if not json else ():
            print_line(f"wrote {path}")
    for record in records if json else ():
        print_json(record)
    if not json:
        print_report(records)
    return 0
