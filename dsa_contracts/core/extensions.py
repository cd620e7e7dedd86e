"""What other distributions add: entry points, read once, when a name is asked for that the package itself does not have.

A distribution names an object under one of these groups in its `pyproject.toml`:

    [project.entry-points."dsa_contracts.row_formats"]
    fp4 = "my_rows:fp4_format"

What cannot be loaded is an error that names its distribution, whoever asks: a plugin that is left out silently shows as a
name that is not known, a long way from its cause.
"""

from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar, cast

from dsa_contracts.core.errors import ArgumentError, ContractDefinitionError, look_for_codes_in

GROUPS = {
    "dsa_contracts.vocabularies": "modules with the dims, marks, dtypes and codes of a path",
    "dsa_contracts.row_formats": "functions of the two widths of a row that make its format",
    "dsa_contracts.layouts": "layouts, each with its segments and the formulas that are proven of it",
    "dsa_contracts.backends": "capability records of backends",
    "dsa_contracts.kernel_sets": "classes with the implementations of all stages",
}
"""The groups, and what an entry point of each names."""

T = TypeVar("T")


@cache
def load(group: str) -> dict[str, object]:
    """Return what installed distributions add to a group, by name; read once in a process.

    Args:
        group: one of `GROUPS`.

    Raises:
        ArgumentError: DSA602, there is no such group.
        ContractDefinitionError: DSA001, an entry point cannot be loaded, or two have one name.
    """
    if group not in GROUPS:
        raise ArgumentError(f"{group!r} is no group of entry points; there are {', '.join(GROUPS)}")
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        other = found.setdefault(point.name, point)
        if other is not point and other.value != point.value:
            raise _error(point, f"{point.name} of {_owner(other)} has that name already", "another name in one of them")
    return {name: _loaded(point) for name, point in found.items()}


class Registry(dict[str, T]):
    """The package's own objects by name; a name that is not among them is looked for in what distributions add.

    Iteration and length are those of the package's own, so that a table made from them says the same on every machine.

    Args:
        group: the group of entry points.
        own: the package's own, which no distribution replaces.
        what: what such an object is called in messages.
        is_one: whether an object is one.
    """

    def __init__(self, group: str, own: Mapping[str, T], *, what: str, is_one: Callable[[object], bool]) -> None:
        super().__init__(own)
        self.group, self.what, self._is_one = group, what, is_one

    def __missing__(self, name: str) -> T:
        """Return an object that a distribution adds.

        Raises:
            KeyError: there is none of that name.
            ContractDefinitionError: DSA001, an entry point of the group cannot be loaded, or names something else.
        """
        return self._added()[name]

    def __contains__(self, name: object) -> bool:
        """Whether the package or a distribution has an object of that name."""
        return super().__contains__(name) or name in self._added()

    def named(self, name: str) -> T:
        """Return an object by name; raises ArgumentError DSA602 naming all that there are."""
        if name not in self:
            raise ArgumentError(f"{self.what} {name!r} is not known; known are {', '.join(self.known())}")
        return self[name]

    def known(self) -> tuple[str, ...]:
        """Return all names, the package's own first."""
        return (*self, *self._added())

    def extended(self, more: Mapping[str, T]) -> "Registry[T]":
        """Return a registry of these and more, of the same group."""
        return Registry(self.group, {**self, **more}, what=self.what, is_one=self._is_one)

    def _added(self) -> dict[str, T]:
        """Return what distributions add."""
        added: dict[str, T] = {}
        for name, found in load(self.group).items():
            if dict.__contains__(self, name):
                raise _error(_point(self.group, name), "that name is taken already", "another name")
            if not self._is_one(found):
                raise _error(_point(self.group, name), f"it is {type(found).__name__}", "name what is expected")
            added[name] = cast(T, found)
        return added


def load_vocabularies() -> tuple[str, ...]:
    """Import the vocabularies of installed distributions, so that their dims, dtypes and codes count; return their names.

    Raises:
        ContractDefinitionError: DSA001, one cannot be imported.
    """
    return tuple(load("dsa_contracts.vocabularies"))


look_for_codes_in(load_vocabularies)


def _loaded(point: EntryPoint) -> object:
    """Return what an entry point names."""
    try:
        return point.load()
    except Exception as error:
        said = " ".join(str(error).split())
        raise _error(point, f"{type(error).__name__}: {said}", f"repair {_owner(point)}, or uninstall it") from error


def _error(point: EntryPoint, reason: str, advice: str) -> ContractDefinitionError:
    return ContractDefinitionError(
        f"{point.name}, which {_owner(point)} adds to {point.group}, cannot be used: {reason}",
        facts=[("got", f"{point.name} = {point.value}"), ("expected", GROUPS[point.group]), ("try", advice)],
    )


def _owner(point: EntryPoint) -> str:
    """Return the distribution of an entry point, with its version."""
    return "an unnamed distribution" if point.dist is None else f"{point.dist.name} {point.dist.version}"


def _point(group: str, name: str) -> EntryPoint:
    return next(point for point in entry_points(group=group) if point.name == name)
