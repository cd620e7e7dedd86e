"""`dsa-cp prove`: what the layouts and the stages promise, proven for all lengths, or a counter-example."""

from typing import TYPE_CHECKING, Annotated

import typer

from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.dsa.layout import Layout
from dsa_cp.cli.output import print_json, print_line, print_table, progress_bar
from dsa_cp.layouts import layout_by_name, layout_choices, layout_examples

if TYPE_CHECKING:
    from dsa_cp.tools.prove.results import Result
    from dsa_cp.tools.prove.wrong import Variant

HELP = """Prove, for all lengths and not on samples, that rows come back from the gather once, that positions, lengths and
slots are right, and that the stages of each placement fit; or print the smallest lengths under which it is false."""
EXAMPLE = "Example: dsa-cp prove --cp-size 4 --layout zigzag; dsa-cp prove --variant pad_ceil_nnz"

CP_SIZES = [2, 3, 4, 8, 16]
REQUESTS = [1, 2, 3]


def command(
    cp_size: Annotated[list[int] | None, typer.Option(help="Ranks, 2 to 16; default 2 3 4 8 16.")] = None,
    layout: Annotated[list[str] | None, typer.Option(help=f"{layout_choices()}.")] = None,
    requests: Annotated[list[int] | None, typer.Option(help="Requests of a batch, 1 to 3; default 1 2 3.")] = None,
    variant: Annotated[
        str, typer.Option(help="Try a known wrong formula in the place of the right one; 'list' names them.")
    ] = "",
    timeout: Annotated[float, typer.Option(help="Seconds for an obligation of one layout, group size and batch.")] = 60.0,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> int:
    """Prove or refute; see HELP."""
    if variant == "list":
        return _list_variants(as_json=json)
    if not timeout > 0:
        raise ArgumentError(f"--timeout is {timeout}; it must be above 0 seconds")
    sizes, counts = _numbers("--cp-size", cp_size, CP_SIZES, 2, 16), _numbers("--requests", requests, REQUESTS, 1, 3)
    names = list(dict.fromkeys(layout or []))
    from dsa_cp.tools.prove.prover import prove
    from dsa_cp.tools.prove.wrong import variant_by_name

    wrong = variant_by_name(variant) if variant else None
    layouts = _layouts(names, wrong)
    results: list[Result] = []
    with progress_bar(enabled=not json) as on_step:
        for result in prove(layouts, sizes, counts, timeout, wrong, lambda done, total: on_step("proving", done, total)):
            results.append(result)
            if json:
                print_json(result.as_json())
    if not json:
        _print(results, layouts, wrong)
    return 0 if all(result.outcome.value in ("proven", "matched") for result in results) else 1


def _numbers(flag: str, given: list[int] | None, default: list[int], low: int, high: int) -> list[int]:
    """Return the numbers given, each once, or the default; raises ArgumentError DSA602 where one is out of range."""
    for number in given or []:
        if not low <= number <= high:
            raise ArgumentError(f"{flag} is {number}; it must be in {low}..{high}")
    return list(dict.fromkeys(given or default))


def _layouts(names: list[str], variant: "Variant | None") -> list[Layout]:
    """Return the layouts named, or all; raises ArgumentError DSA602 for one that a variant is not about."""
    if variant is None:
        return [layout_by_name(name) for name in names or layout_examples()]
    found = [layout_by_name(name) for name in names or variant.layouts]
    known = {type(layout_by_name(name)) for name in variant.layouts}
    for each in found:
        if type(each) not in known:
            raise ArgumentError(f"variant {variant.name} is about {', '.join(variant.layouts)}; --layout is {each.name}")
    return found


def _list_variants(*, as_json: bool) -> int:
    """Print the wrong variants, one a line."""
    from dsa_cp.tools.prove.wrong import VARIANTS

    for variant in VARIANTS.values():
        if as_json:
            facts = {"formula": variant.formula, "right": variant.right, "source": variant.source}
            print_json({"name": variant.name, **facts, "breaks": variant.obligation.name, "layouts": list(variant.layouts)})
        else:
            print_line(f"{variant.name:<25} {variant.formula} ({variant.source})")
    return 0


def _print(results: "list[Result]", layouts: list[Layout], variant: "Variant | None") -> None:
    """Print the table, what it covers, counter-examples, and what stayed open."""
    from dsa_cp.tools.prove.agreement import NAME
    from dsa_cp.tools.prove.report import HEADERS, batch_text, counterexample_text, smallest_of_each, table_rows

    title = "for all lengths" if variant is None else f"{variant.name}: {variant.formula} ({variant.source})"
    print_table(title, HEADERS, table_rows(results), numeric=frozenset(HEADERS[-1:]))
    compared = [result for result in results if result.obligation == NAME]
    goals = sum(result.goals for result in results) - sum(result.goals for result in compared)
    print_line(f"{goals:,} goals in {sum(result.seconds for result in results):.1f} s")
    if compared:
        batches = sum(result.goals for result in compared)
        print_line(f"sampled: {batches:,} batches, whose segments and index tensors were compared with the formulas proven")
    print_line("lengths: any extend >= 1, any prefix >= 0, any engine padding behind each request, any row_alignment >= 1")
    print_line("requests: 'any' is proven for one request among any others; numbers are batches of so many requests")
    blocks = [layout.name for layout in layouts if layout.name.startswith("interleave")]
    if blocks:
        print_line(f"blocks: {', '.join(blocks)}; formulas are not linear in the block, so each block is a proof of its own")
    by_name = {layout.name: layout for layout in layouts}
    for result in smallest_of_each(results):
        if result.counterexample is not None:
            print_line("\n" + counterexample_text(result, by_name[result.layout], result.counterexample, variant))
    for result in results:
        if result.open_goal:
            print_line(f"open: {result.obligation}, {batch_text(result)}: {result.open_goal}, after {result.seconds:.1f} s")
