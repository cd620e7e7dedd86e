"""A stage before and after: which rows stand where, as the marks of its contract say, for the small batch of the scene."""

from typing import TypeVar, get_args, get_origin

from dsa_contracts.core.contract import ParamRecord, StageContract
from dsa_contracts.dsa.states import Global, Local, PerRequest, Pool, Raw, Rotated, Sequence, Table
from dsa_cp.tools.review.drawings.scene import Scene, Strip
from dsa_cp.tools.review.drawings.svg import Drawing, Point, Sheet

_THREADS = 20
"""Height of the space that threads cross."""


def stage_drawing(sheet: Sheet, contract: StageContract, scene: Scene) -> str:
    """Return the drawing of one stage under one layout."""
    layout = scene.layout.name
    drawing = Drawing(sheet, f"{contract.name}-{layout}", f"{contract.name} under {layout}, before and after")
    flowing = {argument for argument, _ in contract.flow}
    first = [param for param in contract.params if param.spec is not None]
    groups = _by_rows(sorted(first, key=lambda param: param.name in flowing))
    written = {result for _, result in contract.flow} & set(contract.names)
    places: dict[int, Point] = {}
    for rows, params in groups:
        fills = rows is Pool and not any(param.name in written for param in params)
        places = _draw(drawing, scene, "takes", rows, params, is_written=fills) or places
    results = [*contract.returns, *(param for param in contract.params if param.name in written)]
    for at, (rows, params) in enumerate(_by_rows(results)):
        if at == 0:
            drawing.y += _THREADS
        bend = drawing.y + 2
        after = _draw(drawing, scene, "returns" if contract.returns else "writes", rows, params, is_written=True)
        if at == 0 and places and after:
            drawing.threads(places, after, {row: scene.token(row).kind for row in after}, bend)
    return drawing.render()


Group = tuple[object, list[ParamRecord]]


def _by_rows(params: list[ParamRecord]) -> list[Group]:
    """Return parameters that hold the same rows together, in the order of their last."""
    found: dict[str, Group] = {}
    for param in params:
        if param.spec is not None:
            key = str(param.spec.rows)
            _, before = found.pop(key, (None, []))
            found[key] = (param.spec.rows, [*before, param])
    return list(found.values())


def _draw(
    drawing: Drawing, scene: Scene, verb: str, rows: object, params: list[ParamRecord], *, is_written: bool
) -> dict[int, Point]:
    """Draw one group of parameters and its rows; returns where each row of the batch stands."""
    strip, whose = strip_of(rows, scene, is_written=is_written)
    names = ", ".join(f"{param.name}{_state_word(param)}" for param in params)
    drawing.said.append(f"{verb} {names}")
    drawing.label(f"{verb} {names}{whose}", "l h")
    is_rotated = any(_rope_state(param) is Rotated for param in params)
    places = drawing.strip(strip, is_rotated=is_rotated)
    drawing.y += 4
    return places


def strip_of(rows: object, scene: Scene, *, is_written: bool) -> tuple[Strip, str]:
    """Return the strip of a rows mark, and a remark where the mark leaves open what it shows."""
    if isinstance(rows, TypeVar):
        return scene.local(), "; any rows, here local"
    if get_origin(rows) is Local:
        return scene.local(), ""
    if get_origin(rows) is Global:
        (order,) = get_args(rows)
        if order is Sequence:
            return scene.sequence(), ""
        return scene.rank_major(), "; any order, here rank-major" if isinstance(order, TypeVar) else ""
    if rows is Pool:
        return scene.pool(is_written=is_written), ""
    return (
        (scene.requests(), "")
        if rows is PerRequest
        else (scene.table(), ", rows by position")
        if rows is Table
        else (
            scene.sequence(),
            "",
        )
    )


def _rope_state(param: ParamRecord) -> object:
    """Return Raw or Rotated where a tensor's state says it, else None."""
    state = None if param.spec is None else param.spec.state
    found = {mark for mark in (state, *get_args(state)) if mark in (Raw, Rotated)}
    return next(iter(found), None)


def _state_word(param: ParamRecord) -> str:
    """Return ` (raw)` or ` (rotated)` where a tensor's state says it."""
    state = _rope_state(param)
    return "" if state is None else f" ({getattr(state, '__name__', '').lower()})"
