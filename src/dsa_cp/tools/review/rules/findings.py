"""What a rule is, and what it says of a line of code."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dsa_cp.tools.review.rules.sources import Source, Tree


@dataclass(frozen=True, order=True)
class Finding:
    """A rule that a line breaks."""

    path: str
    line: int
    column: int
    code: str
    text: str

    @property
    def as_line(self) -> str:
        """The finding as compilers write it."""
        return f"{self.path}:{self.line}:{self.column} {self.code} {self.text}"

    def as_json(self) -> dict[str, object]:
        """Return the finding as one object."""
        return {"path": self.path, "line": self.line, "column": self.column, "code": self.code, "text": self.text}


@dataclass(frozen=True)
class Rule:
    """One rule of the house.

    Attributes:
        code: stable; a code that is no longer used is not used again.
        title: what holds in a clean tree.
        why: what goes wrong where it does not.
        needs_house: whether it speaks of the house's own folders, and says nothing of other people's modules.
        check: finds what breaks it in a tree.
    """

    code: str
    title: str
    why: str
    needs_house: bool
    check: Callable[[Tree], Iterable[Finding]]


def finding(source: Source, node: object, code: str, text: str) -> Finding:
    """Return a finding at a node of a source, or at its first line where the node has no place."""
    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
    return Finding(source.shown, line, column + 1, code, text)
