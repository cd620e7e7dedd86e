"""Changes of what a stage says besides types: invariants, flow of rows, codes and advice."""

from collections.abc import Iterator

from dsa_cp.tools.review.changes import CALLERS, IMPLEMENTATIONS, READERS, Change, replaced
from dsa_cp.tools.review.contract_facts import InvariantFacts, StageFacts

Key = tuple[str, str]
"""Name and subject: what tells the invariants of a stage apart."""


def invariant_changes(before: StageFacts, after: StageFacts) -> Iterator[Change]:
    """Yield changed invariants.

    One more before the call breaks callers, one fewer the implementations that relied on it; after the call it is the
    other way round.
    """
    for when, was, now in (("before", before.requires, after.requires), ("after", before.ensures, after.ensures)):
        givers, takers = (CALLERS, IMPLEMENTATIONS) if when == "before" else (IMPLEMENTATIONS, CALLERS)
        old, new = _by_key(was), _by_key(now)
        for key, invariant in old.items():
            where = f"{before.name}.{invariant.subject}"
            if key not in new:
                what = f"invariant {invariant.name} no longer holds {when} the call"
                yield Change(where, what, (takers,), (givers,))
            else:
                yield from _one(where, invariant, new[key], givers, takers)
        for key, invariant in new.items():
            if key not in old:
                what = f"invariant {invariant.name} ({invariant.code}) must hold {when} the call: {invariant.statement}"
                yield Change(f"{before.name}.{invariant.subject}", what, (givers,), (takers,))


def _by_key(invariants: tuple[InvariantFacts, ...]) -> dict[Key, InvariantFacts]:
    return {(invariant.name, invariant.subject): invariant for invariant in invariants}


def _one(where: str, before: InvariantFacts, after: InvariantFacts, givers: str, takers: str) -> Iterator[Change]:
    """Yield what changed in one invariant of the same name and subject."""
    name = f"invariant {before.name}:"
    if before.statement != after.statement:
        yield replaced(where, name, f"{before.statement!r}", f"{after.statement!r}", (givers, takers))
    if before.code != after.code:
        yield replaced(where, f"{name} code", before.code, after.code, (READERS,))
    if before.reads_data != after.reads_data:
        modes = ("development and values mode", "values mode alone")
        was, now = modes[before.reads_data], modes[after.reads_data]
        breaks, fits = ((), (givers, takers)) if after.reads_data else ((givers,), (takers,))
        yield replaced(where, f"{name} checked in", was, now, breaks, fits)


def flow_changes(before: StageFacts, after: StageFacts) -> Iterator[Change]:
    """Yield rows that flow otherwise, and arguments that may come from elsewhere: planners follow both."""
    for argument, result in before.flow:
        if (argument, result) not in after.flow:
            what = f"its rows no longer flow into {result}"
            yield Change(f"{before.name}.{argument}", what, (CALLERS, IMPLEMENTATIONS))
    for argument, result in after.flow:
        if (argument, result) not in before.flow:
            yield Change(f"{before.name}.{argument}", f"its rows flow into {result}", (CALLERS, IMPLEMENTATIONS))
    for argument in dict.fromkeys([*before.sources, *after.sources]):
        was, now = (" or ".join(stage.sources.get(argument, ())) or "anywhere" for stage in (before, after))
        if was != now:
            old, new = set(before.sources.get(argument, ())), set(after.sources.get(argument, ()))
            is_looser = not new or (bool(old) and old <= new)
            breaks, fits = ((), (CALLERS,)) if is_looser else ((CALLERS,), (IMPLEMENTATIONS,))
            yield replaced(f"{before.name}.{argument}", "may come from", was, now, breaks, fits)


def raises_changes(before: StageFacts, after: StageFacts) -> Iterator[Change]:
    """Yield codes that a stage lists now and did not, or the other way round."""
    for kind in dict.fromkeys([*before.raises, *after.raises]):
        was, now = before.raises.get(kind, ()), after.raises.get(kind, ())
        for code in was:
            if code not in now:
                yield Change(before.name, f"{kind} {code} is no longer listed", (READERS,))
        for code in now:
            if code not in was:
                yield Change(before.name, f"{kind} {code} is listed now", (), (READERS,))


def advice_changes(before: StageFacts, after: StageFacts) -> Iterator[Change]:
    """Yield codes for which a stage's advice is another."""
    for code in dict.fromkeys([*before.advice, *after.advice]):
        if before.advice.get(code) != after.advice.get(code):
            yield Change(before.name, f"advice for {code} is another", (), (READERS,))
