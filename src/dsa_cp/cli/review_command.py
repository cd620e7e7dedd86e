"""`dsa-cp review`: what a reviewer of a pull request reads, compares and checks."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.core.modes import Mode, mode_from_environment
from dsa_contracts.dsa.codes import PlanError
from dsa_cp.cli.output import print_json, print_line, print_table
from dsa_cp.tools.review.contract_facts import contract_facts
from dsa_cp.tools.review.diff import compare
from dsa_cp.tools.review.lock import lock_text, read_lock
from dsa_cp.tools.review.stage_catalogue import Format, json_lines, markdown, stage_views
from dsa_cp.tools.review.text import text
from dsa_cp.tools.whole_files import write_text

HELP = """Show the contract catalogue; or check a plan, compare contracts with a lock, apply the house rules, or probe the
stages. Exit codes: 0 clean, 1 findings, 2 misuse."""
EXAMPLE = "Example: dsa-cp review --against contracts.lock.json"


@dataclass(frozen=True)
class Request:
    """The options of one call."""

    paths: tuple[Path, ...]
    format: Format | None
    output: Path | None
    stages: tuple[str, ...]
    locked: bool
    json: bool


def command(
    paths: Annotated[list[Path] | None, typer.Argument(help="With --self: files and folders; default: this one.")] = None,
    format: Annotated[Format | None, typer.Option(help="Of the catalogue; default: text.")] = None,
    output: Annotated[Path | None, typer.Option(help="File for the catalogue, instead of the standard output.")] = None,
    stage: Annotated[list[str] | None, typer.Option(help="Only this stage; may be repeated.")] = None,
    check_plan: Annotated[Path | None, typer.Option(help="A plan (JSON) to check against the contracts.")] = None,
    against: Annotated[Path | None, typer.Option(help="A lock to compare with; - is the standard input.")] = None,
    locked: Annotated[bool, typer.Option("--locked", help="With --against: any difference is a finding.")] = False,
    write_lock: Annotated[Path | None, typer.Option(help="Write the lock of the contracts.")] = None,
    self_: Annotated[bool, typer.Option("--self", help="Apply the house rules to PATHS.")] = False,
    explain_rules: Annotated[bool, typer.Option("--explain-rules", help="List the house rules, and why.")] = False,
    probe: Annotated[bool, typer.Option("--probe", help="Run stages and path on fake tensors of prime sizes.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> int:
    """Review; see HELP."""
    asked: dict[str, Callable[[Request], int] | None] = {
        "--check-plan": (lambda request: _check_plan(check_plan, request)) if check_plan else None,
        "--against": (lambda request: _against(against, request)) if against else None,
        "--write-lock": (lambda request: _write_lock(write_lock, request)) if write_lock else None,
        "--self": _self if self_ else None,
        "--explain-rules": _explain if explain_rules else None,
        "--probe": _probe if probe else None,
    }
    request = Request(tuple(paths or ()), format, output, tuple(stage or ()), locked, json)
    chosen = [name for name, action in asked.items() if action is not None]
    _refuse_what_does_not_go_together(request, chosen)
    action = next((action for action in asked.values() if action is not None), _catalogue)
    return action(request)


def _refuse_what_does_not_go_together(request: Request, chosen: list[str]) -> None:
    """Raise ArgumentError DSA602 for options of two different questions."""
    if len(chosen) > 1:
        raise ArgumentError(f"{' and '.join(chosen)} are different questions; ask one at a time")
    asked = chosen[0] if chosen else "the catalogue"
    given = {
        "PATHS": (bool(request.paths), ("--self",)),
        "--format": (request.format is not None, ("the catalogue",)),
        "--output": (request.output is not None, ("the catalogue",)),
        "--stage": (bool(request.stages), ("the catalogue", "--probe")),
        "--locked": (request.locked, ("--against",)),
    }
    for name, (is_given, owners) in given.items():
        if is_given and asked not in owners:
            raise ArgumentError(f"{name} goes with {' or '.join(owners)}, not with {asked}")
    if request.json and request.format not in (None, Format.JSON):
        raise ArgumentError(f"--json and --format {request.format} are two forms; ask for one")


def _catalogue(request: Request) -> int:
    """Print or write the catalogue."""
    made = _rendered(Format.JSON if request.json else request.format or Format.TEXT, request.stages)
    if request.output is None:
        print_line(made.removesuffix("\n"))
    else:
        write_text(request.output, made)
    return 0


def _rendered(form: Format, stages: tuple[str, ...]) -> str:
    if form is Format.HTML:
        from dsa_cp.tools.review.page import page

        return page(stages)
    return {Format.TEXT: text, Format.MARKDOWN: markdown, Format.JSON: json_lines}[form](stages)


def _check_plan(path: Path | None, request: Request) -> int:
    """Say whether the stages of a plan fit; the planner reads and checks it."""
    from dsa_cp.planner.plan_files import read_plan

    try:
        plan = read_plan(path or Path())
    except PlanError as error:
        facts = [[label, said] for label, said in error.facts]
        refusal = {"path": str(path), "verdict": "refused", "code": error.code, "headline": error.headline, "facts": facts}
        print_json({**refusal}) if request.json else print_line(str(error))
        return 1
    if request.json:
        print_json({"path": str(path), "verdict": "fits", "plan": plan.name, "stages": list(plan.stages)})
    else:
        print_line(f"{path}: fits: {plan.name}: {', '.join(plan.stages)}")
    return 0


def _against(path: Path | None, request: Request) -> int:
    """Print what changed since a lock; 1 where anything breaks, or with --locked where anything differs."""
    before, after = read_lock(path or Path()), contract_facts()
    changes = compare(before, after)
    for change in changes:
        print_json(change.as_json()) if request.json else print_line(change.line)
    breaking = sum(bool(change.breaks) for change in changes)
    if not request.json:
        print_line(f"{len(changes)} changes, {breaking} breaking" if changes else f"contracts are those of {path}")
        if request.locked and changes:
            print_line(f"write the lock again where this is meant: dsa-cp review --write-lock {path}")
    return 1 if breaking or (request.locked and before != after) else 0


def _write_lock(path: Path | None, request: Request) -> int:
    """Write the lock."""
    write_text(path or Path(), lock_text(contract_facts()))
    return 0


def _self(request: Request) -> int:
    """Print what breaks the house rules."""
    from dsa_cp.tools.review.rules import check_paths

    report = check_paths(request.paths or (Path(),))
    for finding in report.findings:
        print_json(finding.as_json()) if request.json else print_line(finding.as_line)
    if request.json:
        print_json({"files": report.files, "findings": len(report.findings), "skipped": list(report.skipped)})
    else:
        print_line(f"{report.files} files, {len(report.findings)} findings")
        if report.skipped:
            print_line(f"not applied, since the files stand in no house: {', '.join(report.skipped)}")
    return 1 if report.findings else 0


def _explain(request: Request) -> int:
    """List the rules."""
    from dsa_cp.tools.review.rules import RULES

    for rule in RULES:
        house = "house only" if rule.needs_house else "any module"
        if request.json:
            print_json({"code": rule.code, "title": rule.title, "why": rule.why, "needs_house": rule.needs_house})
        else:
            print_line(f"{rule.code}  {rule.title}\n        {rule.why} ({house})")
    return 0


def _probe(request: Request) -> int:
    """Run stages, and without --stage also the path, on fake tensors; 1 where a contract does not hold."""
    from dsa_cp.tools.review.probe.path_probe import probe_paths
    from dsa_cp.tools.review.probe.probe_report import lines_of
    from dsa_cp.tools.review.probe.stage_probe import probe_stages

    mode = mode_from_environment()
    if mode is not Mode.DEVELOPMENT:
        raise ArgumentError(f"--probe needs development mode; DSA_CONTRACTS is {mode.value}")
    stage_views(request.stages)
    results = list(probe_stages(request.stages))
    results += [] if request.stages else list(probe_paths())
    if request.json:
        for result in results:
            print_json(result.as_json())
    else:
        headers, rows, remarks = lines_of(results)
        print_table("on fake tensors of prime sizes", headers, rows)
        for remark in remarks:
            print_line(remark)
    return 0 if all(result.is_clean for result in results) else 1
