"""A sequence of stages by name, applied to what a layer holds: the path that it is, or where it does not fit and why."""

from typing import get_origin

from dsa_contracts import StageContract, TensorSpec
from dsa_contracts.core.marks import mark_text
from dsa_contracts.core.matching import Bound, clash_of, distance
from dsa_contracts.dsa.codes import PlanError
from dsa_contracts.dsa.states import Global, Local
from dsa_cp.planner.catalogue import contract_named
from dsa_cp.planner.keys import key_state
from dsa_cp.planner.moves import Held, Holdings, Move, all_moves, flowing, moves, source_spec, start
from dsa_cp.planner.search import Path, can_attend

_GATHER_FIRST = "gather K before: all_gather_kv makes this rank's rows those of all ranks"


def replay(stages: tuple[str, ...], layout: type) -> Path:
    """Return the path that stages by name make; stages of q alone stand after those of K, and may be left out.

    Raises:
        PlanError: DSA402, a stage does not exist, does not fit what stands before it, or K does not reach the pool.
    """
    state, taken = start(layout), []
    for at, name in enumerate(stages):
        contract = contract_named(name)
        wants_keys = not key_state(state).is_in_pool
        options = moves(contract, state, layout)
        move = next((option for option in options if option.moves_keys is wants_keys), None)
        if move is None:
            raise _misfit(contract, state, layout, at, stages)
        taken.append(move)
        state = move.after(state)
    return _path(tuple(taken), state, layout)


def _path(taken: tuple[Move, ...], state: Holdings, layout: type) -> Path:
    """Return the path of moves, its queries completed; raises PlanError DSA402 where K is not in the pool."""
    end = key_state(state)
    if not end.is_in_pool:
        raise PlanError(
            f"the plan ends with K as {end.dtype} in {end.rows} rows, not in the pool",
            code="DSA402",
            facts=[("expected", "a last stage that writes K into the pool"), ("try", "end with write_kv")],
        )
    while not can_attend(state, layout):
        move = next((option for option in all_moves(state, layout) if not option.moves_keys), None)
        if move is None:
            raise PlanError("the plan leaves no queries that attend takes", code="DSA402")
        taken, state = (*taken, move), move.after(state)
    held, keys = start(layout), [key_state(start(layout))]
    for move in taken:
        held = move.after(held)
        keys.append(key_state(held))
    return Path(taken, tuple(keys), held)


def _misfit(contract: StageContract, state: Holdings, layout: type, at: int, stages: tuple[str, ...]) -> PlanError:
    """Return the error for a stage that does not fit: the stage, the two facts that clash, and the fix."""
    place = f"{at + 1} of {len(stages)}, after {stages[at - 1]}" if at else f"1 of {len(stages)}"
    bound: Bound = {"L": layout}
    taken: list[Held] = []
    for name in flowing(contract):
        pattern = contract.param(name).spec
        held = _meant(name, pattern, [tensor for tensor in state if tensor not in taken], bound)
        if pattern is None or held is None:
            return _error(contract, f"nothing is left for {name}", place, [("got", _shown_state(state))], "")
        clash = clash_of(pattern, held.spec, bound)
        if clash is not None:
            facts = [
                ("expected", f"{name}: {pattern.describe()}"),
                ("got", f"{held.name}: {held.spec.describe()}, from {held.maker}"),
            ]
            is_early = get_origin(pattern.rows) is Global and get_origin(held.spec.rows) is Local
            return _error(contract, f"{held.name} {clash.text}", place, facts, clash.code, _GATHER_FIRST if is_early else "")
        taken.append(held)
    return _no_source(contract, layout, bound, place)


def _meant(name: str, pattern: TensorSpec | None, state: list[Held], bound: Bound) -> Held | None:
    """Return the held tensor that a parameter is meant for: that of its name, else of K the nearest to fit, made last."""
    if pattern is None or not state:
        return None
    same = [held for held in state if held.name == name]
    keys = same or [held for held in state if held.is_key] or state

    return min(reversed(keys), key=lambda held: distance(pattern, held.spec, bound))


def _no_source(contract: StageContract, layout: type, bound: Bound, place: str) -> PlanError:
    """Return the error for a stage whose rows fit, but whose other arguments exist for other rows only."""
    for name, sources in contract.sources:
        pattern = contract.param(name).spec
        if pattern is None or any(clash_of(pattern, source_spec(source, layout), dict(bound)) is None for source in sources):
            continue
        known = "; ".join(f"{source} of {mark_text(source_spec(source, layout).rows)}" for source in sources)
        rows = bound.get(getattr(pattern.rows, "__name__", ""), pattern.rows)
        headline = f"there is no {name} for {mark_text(rows)} rows"
        return _error(contract, headline, place, [("expected", f"{name}: {pattern.describe()}"), ("got", known)], "DSA106")
    return _error(contract, "its row format is none of KV rows", place, [], "")


def _error(
    contract: StageContract, what: str, place: str, facts: list[tuple[str, str]], clash_code: str, advice: str = ""
) -> PlanError:
    """Return a PlanError DSA402 about one stage."""
    advice = advice or contract.advice_for(clash_code) or "`dsa-cp plan --explain` shows the placements that fit"
    return PlanError(
        f"{contract.name}: {what}",
        code="DSA402",
        facts=[("stage", place), *facts, ("contract", contract.location), ("try", advice)],
    )


def _shown_state(state: Holdings) -> str:
    """Return what is held of K, in one line."""
    return "; ".join(f"{held.name}: {held.spec.describe()}" for held in state if held.is_key)
