"""Making a plan: the cheapest legal placement, or one by name, with why the others lost."""

from collections.abc import Mapping

from dsa_contracts.dsa.codes import PlanError
from dsa_cp.planner.backends import Capability
from dsa_cp.planner.choice import Cost, candidates, choose, cost_of, misfit_with_early_gather
from dsa_cp.planner.options import PlanOptions
from dsa_cp.planner.plan import Plan, Rejected, plan_facts
from dsa_cp.planner.refusals import PlanQuestion, ask, refuse_what_cannot_work
from dsa_cp.planner.search import Path, legal_paths


def make(options: PlanOptions, known: Mapping[str, Capability], placement: str | None = None) -> Plan:
    """Return the cheapest plan, or that of a placement by name.

    Raises:
        PlanError: DSA401, DSA304 (missing metadata), DSA402 (there is no such placement, or it does not fit).
    """
    question = ask(options, known)
    refuse_what_cannot_work(question)
    layout = type(options.made_layout)
    if placement is None:
        chosen = choose(question).path
    else:
        named = {path.name: path for path in legal_paths(layout)}
        if placement not in named:
            known_names = [("known", ", ".join(named))]
            raise PlanError(f"there is no placement {placement!r}", code="DSA402", facts=known_names)
        chosen = named[placement]
    facts = plan_facts(question, chosen.stages)
    data = {"options": options, **facts, "rejected": rejected(question, chosen)}
    return Plan.model_validate(data, context={"capabilities": known})


def rejected(question: PlanQuestion, chosen: Path) -> tuple[Rejected, ...]:
    """Return the placements that a plan was not made with: those that can run, those that cannot, those that do not fit."""
    options, found = question.options, []
    best = cost_of(chosen, options)
    for candidate in candidates(question):
        if candidate.path.stages != chosen.stages:
            reason = candidate.problem or _dearer(candidate.cost, best)
            found.append(Rejected(placement=candidate.path.name, reason=reason))
    paths = [chosen, *(candidate.path for candidate in candidates(question))]
    gathers = next(path for path in paths if not path.gathers_into_pool)
    early = misfit_with_early_gather(gathers, type(options.made_layout))
    if early is not None:
        found.append(Rejected(placement=early[0], reason=f"does not fit: {early[1]}"))
    return tuple(found)


def _dearer(cost: Cost, best: Cost) -> str:
    """Return by what a placement costs more."""
    if cost == best:
        return "costs the same, and comes later by name"
    if cost < best:
        return f"cheaper ({cost.describe()}), but not asked for"
    if cost.wire_bytes != best.wire_bytes:
        return f"{cost.wire_bytes} bytes a token on the wire, not {best.wire_bytes}"
    if cost.all_row_passes != best.all_row_passes:
        return f"{cost.all_row_passes} passes over all rows, not {best.all_row_passes}"
    return f"{cost.own_row_passes} passes over this rank's rows, not {best.own_row_passes}"
