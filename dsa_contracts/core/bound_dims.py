"""Dims bound once for a scope and shared by all its calls, with who bound them; and the log of what was checked."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Bindings = tuple[tuple[str, int, str], ...]
"""Dims: name, value, and who binds them."""


class BoundSize(NamedTuple):
    """A bound dim: its value and who bound it, as in `project.hidden`."""

    value: int
    by: str


@dataclass
class BoundDims:
    """The dims of one scope on one rank. The scope binds those that it knows, the first tensor that has them the rest.

    Attributes:
        dims: what is bound, by name.
        applied: remembered calls that agree with it and have bound what they bind.
        latest: of each call cache, the latest few of them that this scope made.
        declared: what was declared of tensors in this scope, see `declarations`.
    """

    dims: dict[str, BoundSize] = field(default_factory=dict)
    applied: set[object] = field(default_factory=set)
    latest: dict[object, tuple[Any, ...]] = field(default_factory=dict)
    declared: dict[tuple[int, int, str], tuple[Any, ...]] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, object]:
        """What a copy of the scope, or one in another process, takes along: dims, and no memory of calls."""
        return {"dims": dict(self.dims), "applied": set(), "latest": {}, "declared": {}}

    def value(self, name: str) -> int | None:
        """Return a dim's value, None where it is not bound."""
        bound = self.dims.get(name)
        return None if bound is None else bound.value

    def bind(self, name: str, value: int, by: str) -> None:
        """Bind a dim; one that is bound keeps its value and its binder."""
        self.dims.setdefault(name, BoundSize(value, by))

    def bind_all(self, bindings: Bindings) -> None:
        """Bind dims; those that are bound stay as they are."""
        for name, value, by in bindings:
            self.bind(name, value, by)

    def agrees(self, bindings: Bindings) -> bool:
        """Whether none of the bindings contradicts what is bound."""
        return all(self.value(name) in (None, value) for name, value, _ in bindings)

    def describe(self) -> str:
        """Return all bound dims in one line."""
        return ", ".join(f"{name}={bound.value}" for name, bound in self.dims.items())


def _counts() -> defaultdict[str, int]:
    return defaultdict(int)


@dataclass
class CheckLog:
    """What development mode did for one scope on one rank: calls, checks and unknown tensors by stage."""

    calls: defaultdict[str, int] = field(default_factory=_counts)
    checked: defaultdict[str, int] = field(default_factory=_counts)
    unknown: defaultdict[str, int] = field(default_factory=_counts)

    def add(self, stage: str, checked: int, unknown: int) -> None:
        """Count one call of a stage: how many facts were compared anew, and how many tensors carried no brand."""
        self.calls[stage] += 1
        if checked:
            self.checked[stage] += checked
        if unknown:
            self.unknown[stage] += unknown
