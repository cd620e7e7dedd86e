"""The registry of layouts: how to make each from its written name, as in `interleave(block=64)`.

Whatever takes a layout by name reads it here: `layout_by_name`, plans, runs, proofs. A layout of another package is
found under the entry point group `dsa_contracts.layouts` when its name is asked for.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from inspect import signature

from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.core.extensions import load
from dsa_contracts.dsa.layout import Layout

ENTRY_POINTS = "dsa_contracts.layouts"
"""Entry point group: a layout's name, and the class or function that makes it."""

_WRITTEN = re.compile(r"([a-z][a-z0-9_]*)(?:\(([a-z_]+=[0-9]{1,9}(?:, ?[a-z_]+=[0-9]{1,9})*)\))?")
_STEM = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class _Entry:
    """A registered layout: what makes it, from parameters by name, and written names of it that are worth a proof."""

    make: Callable[..., Layout]
    examples: tuple[str, ...]

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters, by name; each is an int."""
        return tuple(signature(self.make).parameters)


_entries: dict[str, _Entry] = {}


def register_layout(name: str, make: object, *, examples: tuple[str, ...] = ()) -> None:
    """Make a layout known under its name.

    Args:
        name: the written name without parameters.
        make: the layout's class, or a function; its parameters are ints, which the written name may give.
        examples: written names that `dsa-cp prove` takes where none is given; the name alone where empty.

    Raises:
        ArgumentError: DSA602, nothing can be made, the name is not a small word, or another layout has it.
    """
    if not callable(make):
        raise ArgumentError(f"layout {name} is made by a class or a function, not by {make!r}")
    if not isinstance(name, str) or not _STEM.fullmatch(name):
        raise ArgumentError(f"a layout is named by small letters, digits and _, not {name!r}")
    if _entries.get(name, _Entry(make, ())).make is not make:
        raise ArgumentError(f"layout {name} is registered already, as {_entries[name].make!r}; give this one another name")
    _entries[name] = _Entry(make, examples or (name,))


def layout_names() -> tuple[str, ...]:
    """Return the names of all registered layouts, without parameters."""
    return tuple(_entries)


def layout_examples() -> tuple[str, ...]:
    """Return the written names that stand for all registered layouts in proofs."""
    return tuple(example for entry in _entries.values() for example in entry.examples)


def layout_choices() -> str:
    """Return the written names that may be asked for, in words."""
    texts = []
    for name, entry in _entries.items():
        texts.append(name)
        if entry.parameters:
            given = ", ".join(f"{parameter}=64" for parameter in entry.parameters)
            texts.append(f"{name}({given}) with any {' and '.join(entry.parameters)}")
    outside = [point.name for point in entry_points(group=ENTRY_POINTS) if point.name not in _entries]
    return ", ".join([*texts, *sorted(set(outside))])


def layout_by_name(text: str) -> Layout:
    """Return the layout with this written name, as `Layout.name` gives it.

    Raises:
        ArgumentError: DSA602, no layout has the name or such parameters, or what is registered under it makes no layout.
        ContractDefinitionError: DSA001, an installed package has an entry point for layouts that cannot be loaded.
    """
    match = _WRITTEN.fullmatch(text) if isinstance(text, str) else None
    entry = _entry_of(match[1]) if match else None
    given = dict(_parameter(each) for each in re.split(", ?", match[2])) if match and match[2] else {}
    if entry is None or not set(given) <= set(entry.parameters):
        raise ArgumentError(f"layout is {text!r}; it must be one of {layout_choices()}")
    layout = entry.make(**given)
    if not isinstance(layout, Layout):
        raise ArgumentError(f"layout {text} is made by {entry.make!r}, which gives a {type(layout).__name__} and no Layout")
    return layout


def _parameter(text: str) -> tuple[str, int]:
    """Return name and value of a written parameter."""
    name, _, value = text.partition("=")
    return name, int(value)


def _entry_of(name: str) -> _Entry | None:
    """Return the entry with this name; what an installed package has under the name is registered first."""
    if name not in _entries and name in (added := load(ENTRY_POINTS)):
        register_layout(name, added[name])
    return _entries.get(name)
