"""A placement as two lanes, K's and q's, with the gather at one height in all drawings: where it stands is what differs."""

from html import escape

from dsa_cp.planner.keys import KeyState
from dsa_cp.planner.moves import Move
from dsa_cp.planner.search import Path
from dsa_cp.tools.review.drawings.svg import Drawing, Sheet, number

WIDTH = 216
_NODE, _STEP = 24, 44
_K, _Q = (0, 118, 59), (130, 86, 173)
"""Left, width and middle of each lane."""

_TOP = 16


def gather_at(path: Path) -> int:
    """Return the place of the collective among the moves."""
    return next(at for at, move in enumerate(path.moves) if move.contract.comm_param is not None)


def flow_drawing(sheet: Sheet, path: Path, before: int) -> str:
    """Return the drawing of a placement.

    Args:
        sheet: the strips of the page.
        path: the placement.
        before: stages that stand before the gather in the longest of all placements.
    """
    drawing = Drawing(sheet, f"flow-{path.name}", f"Placement {path.name}", WIDTH)
    at = gather_at(path)
    keys = [move for move in path.moves if move.moves_keys]
    lines = [_TOP + _STEP * (before - at + place) for place in range(len(keys))]
    bottom = lines[-1] + _NODE + _STEP - 12
    _zones(drawing, lines[at], bottom)
    _lane(drawing, _K[2], _TOP - 2, bottom)
    _lane(drawing, _Q[2], _TOP - 2, bottom)
    for move, y, was, now in zip(keys, lines, path.keys, path.keys[1:], strict=False):
        is_gather = move is path.moves[at]
        _node(drawing, move.contract.name, y, "gather" if is_gather else "node", is_wide=_moves_queries(move))
        _text(drawing, "s", _K[2] + 7, y + _NODE + 13, _change(was, now), "start")
    queries = [move for move in path.moves if not move.moves_keys]
    for place, move in enumerate(queries):
        _node(drawing, move.contract.name, _TOP + _STEP * place, "node", lane=_Q)
    _node(drawing, "attend", bottom, "node", is_wide=True)
    _text(drawing, "s", _K[2], _TOP - 5, "k_nope, k_rope", "middle")
    _text(drawing, "s", _Q[2], _TOP - 5, "q_nope, q_rope", "middle")
    drawing.y = bottom + _NODE
    drawing.said = [_words(path)]
    return drawing.render()


def _moves_queries(move: Move) -> bool:
    """Whether q takes part in a stage that K takes part in."""
    return any(not held.is_key for held in move.taken)


def _zones(drawing: Drawing, gather: float, bottom: float) -> None:
    """Shade what holds this rank's rows and what holds all ranks' rows."""
    middle = gather + _NODE / 2
    drawing.add(f'<path class="zl" d="M0 0h{_K[1]}v{number(middle)}h-{_K[1]}z"/>')
    drawing.add(f'<path class="zg" d="M0 {number(middle)}h{_K[1]}v{number(bottom - middle + 6)}h-{_K[1]}z"/>')


def _lane(drawing: Drawing, x: float, top: float, bottom: float) -> None:
    drawing.add(f'<path class="w" d="M{number(x)} {number(top)}V{number(bottom)}"/>')


def _node(drawing: Drawing, name: str, y: float, css: str, *, is_wide: bool = False, lane: tuple[int, int, int] = _K) -> None:
    """Draw a stage in a lane, or across both."""
    left, width, middle = (0, WIDTH, WIDTH // 2) if is_wide else lane
    drawing.add(f'<rect class="{css}" x="{left}" y="{number(y)}" width="{width}" height="{_NODE}" rx="6"/>')
    _text(drawing, f"{css}t", middle, y + 16, name, "middle")


def _text(drawing: Drawing, css: str, x: float, y: float, text: str, anchor: str) -> None:
    if text:
        place = f'x="{number(x)}" y="{number(y)}" text-anchor="{anchor}"'
        drawing.add(f'<text class="{css}" {place}>{escape(text)}</text>')


def _change(was: KeyState, now: KeyState) -> str:
    """Return what a stage has changed of K, in a few words."""
    parts = ["pool" if now.is_in_pool else now.order] if now.order != was.order else []
    parts += [now.rope] if now.rope != was.rope else []
    parts += [now.row_format] if now.row_format != was.row_format else []
    parts += ["views"] if now.strides != was.strides and now.strides == "PackedRowStride" else []
    parts += [f"{now.bytes_per_token} B"] if now.bytes_per_token != was.bytes_per_token else []
    return ", ".join(parts[:2]) or ("packed" if now.strides != was.strides else "")


def _words(path: Path) -> str:
    """Return a placement in words."""
    keys = ", ".join(move.contract.name for move in path.moves if move.moves_keys)
    queries = ", ".join(move.contract.name for move in path.moves if not move.moves_keys)
    wire = path.keys[gather_at(path)].bytes_per_token
    return f"K: {keys}. q: {queries or 'in rope_quantize'}. Then attend. {wire} bytes a token on the wire"
