"""Where our decision and upstream's differ, and why."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dsa_contracts.dsa.codes import PlanError
from dsa_cp.planner.backends import CAPABILITIES, Capability
from dsa_cp.planner.making import make
from dsa_cp.planner.options import PlanOptions
from dsa_cp.planner.plan import Plan
from dsa_cp.planner.refusals import ask, first_refusal
from dsa_cp.planner.upstream import VERSIONS, UpstreamDecision, decide

Kind = Literal["same", "refused by both", "cheaper here", "right here", "new here", "refused here", "other rows"]

KINDS: dict[Kind, str] = {
    "same": "the same placement",
    "refused by both": "no plan here, and upstream refuses it or has no such thing",
    "cheaper here": "another placement, of fewer bytes or one rounding less",
    "right here": "upstream starts, and crashes or computes something else",
    "new here": "upstream refuses it or has no such thing",
    "refused here": "upstream runs it, here it is refused",
    "other rows": "upstream's pool has another row format than the one asked for",
}


@dataclass(frozen=True)
class Comparison:
    """One version of sglang against us.

    Attributes:
        version: the version.
        kind: see `KINDS`.
        upstream: what upstream does, in words.
        reason: why the two differ; empty where they do not.
        source: where upstream decides, under `sglang/srt`.
        notes: what else is to be known of upstream's way.
    """

    version: str
    kind: Kind
    upstream: str
    reason: str
    source: str
    notes: tuple[str, ...]


def plan_or_error(options: PlanOptions, known: Mapping[str, Capability] = CAPABILITIES) -> Plan | PlanError:
    """Return the plan for options, or the error that there is none."""
    try:
        return make(options, known)
    except PlanError as error:
        return error


def compare(
    ours: Plan | PlanError, options: PlanOptions, known: Mapping[str, Capability] = CAPABILITIES
) -> tuple[Comparison, ...]:
    """Return how a plan, or that there is none, compares with each version."""
    found = []
    for version in VERSIONS:
        theirs = decide(version, options, known)
        shown = f"{theirs.placement}, {theirs.row_format} rows" if theirs.outcome == "placed" else theirs.outcome
        kind, reason = _difference(ours, options, theirs, known)
        found.append(Comparison(version, kind, f"{shown}: {theirs.why}", reason, theirs.source, theirs.notes))
    return tuple(found)


def _difference(
    ours: Plan | PlanError, options: PlanOptions, theirs: UpstreamDecision, known: Mapping[str, Capability]
) -> tuple[Kind, str]:
    """Return the kind of a difference and its reason."""
    if isinstance(ours, PlanError):
        return _refusal(options, theirs, known)
    if theirs.outcome == "broken":
        return "right here", theirs.why
    if theirs.outcome != "placed":
        return "new here", theirs.why
    if theirs.row_format != options.kv_format:
        return "other rows", f"its pool has {theirs.row_format} rows"
    if _bare(ours.placement.removesuffix("_write"), options) == _bare(theirs.placement, options):
        return "same", ""
    if options.ranks == 1:
        return "cheaper here", "one cast from float32 in the fused stage; upstream rounds to bf16, then casts in the write"
    return "cheaper here", f"{ours.cost.wire_bytes} bytes a token on the wire; upstream gathers {theirs.wire_bytes}"


def _refusal(options: PlanOptions, theirs: UpstreamDecision, known: Mapping[str, Capability]) -> tuple[Kind, str]:
    """Return the kind of a difference where there is no plan here."""
    refusal = first_refusal(ask(options, known))
    here = "no placement fits" if refusal is None else REFUSALS[refusal[0]]
    if theirs.outcome == "broken":
        return "right here", f"refused here at start-up ({here}); there {theirs.why}"
    if theirs.outcome != "placed":
        return "refused by both", ""
    if theirs.row_format != options.kv_format:
        return "other rows", f"its pool has {theirs.row_format} rows"
    return "refused here", here


def _bare(placement: str, options: PlanOptions) -> str:
    """Return a placement without its gather where nothing is gathered."""
    return "_".join(word for word in placement.split("_") if options.ranks > 1 or word != "gather")


REFUSALS: dict[str, str] = {
    "row format": "a backend does not read the rows",
    "device": "a backend does not run on the device",
    "shared device": "no device runs both backends",
    "counts": "heads, top-k, page or block-table width is not legal",
    "layout": "the layout is not taken",
    "context parallelism": "context parallelism is not declared",
    "pool": "a sharded pool does not hold the keys",
}
"""What each of `refusals.CHECKS` finds, for tables."""
