"""Results as text: a table of what was proven, and counter-examples that can be checked by hand."""

from collections.abc import Iterable, Sequence

from dsa_contracts.dsa.layout import Layout
from dsa_cp.tools.prove.agreement import NAME as AGREEMENT
from dsa_cp.tools.prove.held import held_rows
from dsa_cp.tools.prove.results import Counterexample, Outcome, Result
from dsa_cp.tools.prove.wrong import Variant

HEADERS = ["obligation", "layouts", "cp_size", "requests", "result", "s"]

_RELATIONS = {"=": "", ">=": "at least ", "<": "below "}


def table_rows(results: Sequence[Result]) -> list[list[str]]:
    """Return a row for each obligation and outcome; layouts with the same group sizes and requests share a row."""
    by_layout: dict[tuple[str, Outcome, str], list[Result]] = {}
    for result in results:
        by_layout.setdefault((result.obligation, result.outcome, result.layout), []).append(result)
    merged: dict[tuple[str, str, str, str], list[Result]] = {}
    for (obligation, outcome, _), found in by_layout.items():
        sizes = dict.fromkeys(str(result.cp_size) for result in found)
        requests = dict.fromkeys(result.requests_text for result in found)
        merged.setdefault((obligation, outcome.value, " ".join(sizes), " ".join(requests)), []).extend(found)
    asked = list(dict.fromkeys(result.layout for result in results))
    return [
        [obligation, _layouts_text(found, asked), sizes, requests, outcome, f"{sum(each.seconds for each in found):.1f}"]
        for (obligation, outcome, sizes, requests), found in merged.items()
    ]


def _layouts_text(found: Sequence[Result], asked: Sequence[str]) -> str:
    """Return the layouts of some results: `all` of those that were asked for, `interleaves` for all with any block."""
    names = list(dict.fromkeys(result.layout for result in found))
    if len(names) == len(asked) and len(names) > 1:
        return "all"
    dealt = [name for name in asked if name.startswith("interleave")]
    if len(dealt) > 1 and set(dealt) <= set(names):
        names = [name for name in names if name not in dealt] + ["interleaves"]
    return " ".join(names)


def smallest_of_each(results: Iterable[Result]) -> list[Result]:
    """Return, of each obligation and layout that was refuted, the result with the smallest counter-example."""
    found: dict[tuple[str, str], Result] = {}
    for result in results:
        if result.counterexample is None:
            continue
        key = (result.obligation, result.layout)
        best = found.get(key)
        if best is None or best.counterexample is None or _order(result) < _order(best):
            found[key] = result
    return list(found.values())


def _order(result: Result) -> tuple[int, ...]:
    """Return what results of one obligation and layout are compared by."""
    return (*(result.counterexample.order if result.counterexample else ()), result.cp_size)


def batch_text(result: Result) -> str:
    """Return layout, ranks and requests of a result in words."""
    requests = (
        "any number of requests" if result.requests is None else f"{result.requests} request{'s'[: result.requests > 1]}"
    )
    return f"{result.layout}, {result.cp_size} ranks, {requests}"


def counterexample_text(result: Result, layout: Layout, found: Counterexample, variant: Variant | None = None) -> str:
    """Return a refuted result with lengths, what each rank holds, what is wrong and what is right."""
    head = f"{result.obligation} is false: {batch_text(result)}"
    lens = f"extend {list(found.extend_lens)}, prefix {list(found.prefix_lens)}, padded {list(found.padded_lens)}"
    facts = [("lens", f"{lens}, row_alignment {found.row_alignment}")]
    facts.append(("decodes", ", ".join(f"request {each}" for each, is_decode in enumerate(found.decodes) if is_decode)))
    if result.obligation != AGREEMENT:  # where code and formulas differ, both are shown below
        facts += held_rows(layout, result.cp_size, found.extend_lens, found.padded_lens, found.decodes)
    values = "".join(f", {name} {value}" for name, value in found.values)
    facts.append(("at", f"{found.about}{values}"))
    facts.append(("says", f"{found.what}: {found.says}"))
    facts.append(("right", f"{_RELATIONS[found.relation]}{found.right}"))
    if variant is not None:
        facts += [("formula", variant.formula), ("instead", variant.right), ("source", variant.source)]
    return "\n".join([head, *(f"  {label:<9} {text}" for label, text in facts if text)])
