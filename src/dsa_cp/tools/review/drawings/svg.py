"""SVG text, small: cells of one look are one path, texts of one line are one element."""

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from dsa_cp.tools.review.drawings.scene import Strip

WIDTH = 304
CELL, HEIGHT = 23, 20
"""Pitch and height of a cell; a cell is one unit narrower than its pitch."""

GAP = 13
"""Between groups of cells."""

LABEL = 16
CAPTION = 11
"""Heights of a line of text over a strip, and of one over a group."""

Point = tuple[float, float]


def number(value: float) -> str:
    """Return a coordinate without needless digits."""
    return f"{value:.1f}".removesuffix(".0")


class Sheet:
    """The strips of a page: each is drawn once, and used wherever it stands."""

    def __init__(self) -> None:
        self._found: dict[tuple[Strip, bool], Placed] = {}

    def place(self, strip: Strip, *, is_rotated: bool) -> "Placed":
        """Return a strip that the page has, or draw it."""
        key = (strip, is_rotated)
        if key not in self._found:
            self._found[key] = _draw(f"s{len(self._found)}", strip, is_rotated=is_rotated)
        return self._found[key]

    def render(self) -> str:
        """Return the strips as SVG groups, for a `defs` element of the page."""
        return "".join(placed.svg for placed in self._found.values())


@dataclass(frozen=True)
class Placed:
    """A drawn strip: its id, its height, the top middle of each row's cell, and its SVG."""

    name: str
    height: float
    places: dict[int, Point]
    svg: str


def _draw(name: str, strip: Strip, *, is_rotated: bool) -> Placed:
    """Draw a strip; groups that do not fit on a line stand below the others."""
    places: dict[int, Point] = {}
    cells: dict[str, list[str]] = {}
    texts = ""
    head = CAPTION if any(strip.captions) else 0
    x, y = 0.0, float(head)
    for group, caption in zip(strip.groups, strip.captions, strict=True):
        wide = len(group) * CELL
        if x and x + wide > WIDTH:
            x, y = 0.0, y + HEIGHT + 3 + head
        texts += _line("k", [(x, caption)], y - 3)
        middles = [x + at * CELL + (CELL - 1) / 2 for at in range(len(group))]
        for middle, cell in zip(middles, group, strict=True):
            rounds = is_rotated and cell.kind in ("a", "b")
            box = _box(middle - (CELL - 1) / 2, y, CELL - 1, HEIGHT, 7 if rounds else 0)
            cells.setdefault(cell.kind, []).append(box)
            if cell.row is not None:
                places[cell.row] = (middle, y)
        texts += _line("c", [(middle, cell.text) for middle, cell in zip(middles, group, strict=True)], y + 14)
        x += wide + GAP
    paths = "".join(f'<path class="{kind}" d="{"".join(boxes)}"/>' for kind, boxes in cells.items())
    return Placed(name, y + HEIGHT, places, f'<g id="{name}">{paths}{texts}</g>')


def _line(css: str, parts: Iterable[tuple[float, str]], y: float) -> str:
    """Return texts that stand on one line, as one element."""
    spans = "".join(f'<tspan x="{number(x)}">{escape(text)}</tspan>' for x, text in parts if text)
    return f'<text class="{css}" y="{number(y)}">{spans}</text>' if spans else ""


class Drawing:
    """A drawing that grows downwards.

    Args:
        sheet: the strips of the page.
        name: unique in the page; ids are made of it.
        title: what the drawing is called.
        width: in the units of its cells.
    """

    def __init__(self, sheet: Sheet, name: str, title: str, width: float = WIDTH) -> None:
        self.sheet, self.name, self.title, self.width = sheet, name, title, width
        self.y = 0.0
        self.said: list[str] = []
        self._under: list[str] = []
        self._over: list[str] = []

    def label(self, text: str, css: str = "l") -> None:
        """Write a line of text at the left, folded where it is too long."""
        for line in fold(text, int(self.width / 5.6)):
            self.y += LABEL
            self._over.append(f'<text class="{css}" x="0" y="{number(self.y - 4)}">{escape(line)}</text>')

    def strip(self, strip: Strip, *, is_rotated: bool = False) -> dict[int, Point]:
        """Put a strip below what there is; returns the top middle of each row's cell."""
        placed = self.sheet.place(strip, is_rotated=is_rotated)
        self.said.append(strip.text)
        self._over.append(f'<use href="#{placed.name}" y="{number(self.y)}"/>')
        places = {row: (x, self.y + y) for row, (x, y) in placed.places.items()}
        self.y += placed.height
        return places

    def threads(
        self, before: dict[int, Point], after: dict[int, Point], kinds: dict[int, str], bend: float | None = None
    ) -> None:
        """Draw a thread from the cell of each row to its cell further down.

        Args:
            before: the top middle of each row's cell.
            after: the same further down.
            kinds: the kind of each row's cell.
            bend: where threads stand over their end; below it they run straight. None: at their end.
        """
        for kind in sorted(set(kinds.values())):
            path = ""
            for row, (x0, y0) in before.items():
                if row in after and kinds[row] == kind:
                    x1, y1 = after[row]
                    end = y1 if bend is None else bend
                    start, middle = y0 + HEIGHT, number((y0 + HEIGHT + end) / 2)
                    left, right = number(x0), number(x1)
                    path += f"M{left} {number(start)}C{left} {middle} {right} {middle} {right} {number(end)}"
                    path += "" if bend is None else f"V{number(y1)}"
            if path:
                self._under.append(f'<path class="t{kind}" d="{path}"/>')

    def add(self, element: str) -> None:
        """Add an element under the cells."""
        self._under.append(element)

    def render(self) -> str:
        """Return the drawing as an inline SVG with its title and its words."""
        return (
            f'<svg viewBox="0 0 {number(self.width)} {number(self.y + 2)}" role="img" '
            f'aria-labelledby="{self.name}-t {self.name}-d"><title id="{self.name}-t">{escape(self.title)}</title>'
            f'<desc id="{self.name}-d">{escape(". ".join(self.said))}</desc>{"".join(self._under + self._over)}</svg>'
        )


def _box(x: float, y: float, width: float, height: float, radius: int) -> str:
    """Return the path of a box."""
    if not radius:
        return f"M{number(x)} {number(y)}h{number(width)}v{number(height)}h-{number(width)}z"
    flat, tall, r = number(width - 2 * radius), number(height - 2 * radius), radius
    corner = f"a{r} {r} 0 0 1"
    return (
        f"M{number(x + r)} {number(y)}h{flat}{corner} {r} {r}v{tall}{corner} -{r} {r}h-{flat}{corner} -{r} -{r}"
        f"v-{tall}{corner} {r} -{r}z"
    )


def fold(text: str, width: int) -> list[str]:
    """Return a text in lines of at most `width` characters, cut at commas and spaces."""
    lines, line = [], ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return [*lines, line]
