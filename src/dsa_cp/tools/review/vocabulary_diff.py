"""Changes of what the contracts of all stages are written in: type variables, row formats and codes."""

from collections.abc import Iterator
from typing import TypeVar

from dsa_cp.tools.review.changes import CALLERS, IMPLEMENTATIONS, KERNELS, READERS, Change, replaced
from dsa_cp.tools.review.contract_facts import ContractFacts, PartFacts

T = TypeVar("T")


def variable_changes(before: ContractFacts, after: ContractFacts) -> Iterator[Change]:
    """Yield type variables that stand for something else; one more choice breaks who must serve it, one fewer who used it."""
    for name, was, now in _pairs(before.type_variables, after.type_variables):
        where = f"type variable {name}"
        if was is None:
            yield Change(where, f"added: {now}", (), (CALLERS, IMPLEMENTATIONS))
        elif now is None:
            yield Change(where, "removed", (CALLERS, IMPLEMENTATIONS))
        else:
            old, new = set(was.split(" or ")), set(now.split(" or "))
            callers = () if old <= new else (CALLERS,)
            makers = () if new <= old else (IMPLEMENTATIONS, KERNELS)
            fits = tuple(who for who in (CALLERS, IMPLEMENTATIONS, KERNELS) if who not in (*callers, *makers))
            yield replaced(where, "stands for", was, now, (*callers, *makers), fits)


def format_changes(before: ContractFacts, after: ContractFacts) -> Iterator[Change]:
    """Yield row formats whose bytes are others: kernels and the rows that a pool holds already depend on each."""
    for name, was, now in _pairs(before.row_formats, after.row_formats):
        where = f"row format {name}"
        if was is None:
            yield Change(where, "added", (), (CALLERS, KERNELS))
        elif now is None:
            yield Change(where, "removed", (CALLERS, KERNELS))
        else:
            yield replaced(where, "is", _parts_text(was), _parts_text(now), (CALLERS, KERNELS))


def _parts_text(parts: tuple[PartFacts, ...]) -> str:
    return " + ".join(f"{part.name} {part.count} {part.dtype} at byte {part.offset}" for part in parts)


def code_changes(before: ContractFacts, after: ContractFacts) -> Iterator[Change]:
    """Yield codes that are new, gone, or have another text."""
    for code, was, now in _pairs(before.codes, after.codes):
        if was is None:
            yield Change(f"code {code}", f"added: {now}", (), (READERS,))
        elif now is None:
            yield Change(f"code {code}", f"removed: {was}", (READERS,))
        else:
            yield replaced(f"code {code}", "means", f"{was!r}", f"{now!r}", (), (READERS,))


def _pairs(before: dict[str, T], after: dict[str, T]) -> Iterator[tuple[str, T | None, T | None]]:
    """Yield each name whose value differs, with both values; None where a side has none."""
    for name in dict.fromkeys([*before, *after]):
        was, now = before.get(name), after.get(name)
        if was != now:
            yield name, was, now
