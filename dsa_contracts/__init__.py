"""Contracts of the DSA context-parallel attention path: what must hold, for a type checker, at run time and for review.

The names of the core are here, and those of the DSA vocabulary that a caller needs first. The vocabulary is imported when one
of its names is asked for, so that who states contracts of another path loads the core alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from dsa_contracts import core
from dsa_contracts.core import *  # noqa: F403 - the names that the core's `__all__` lists

if TYPE_CHECKING:
    from dsa_contracts.dsa.batch import CpBatch
    from dsa_contracts.dsa.engine_facts import RowCounts
    from dsa_contracts.dsa.engine_shapes import KvParts, paged, without_heads
    from dsa_contracts.dsa.given_layout import GivenLayout
    from dsa_contracts.dsa.layout import Layout, Segment, SegmentTable
    from dsa_contracts.dsa.rope import RopeStyle
    from dsa_contracts.dsa.slots import SlotOrder

_VOCABULARY = {
    "CpBatch": "batch",
    "GivenLayout": "given_layout",
    "KvParts": "engine_shapes",
    "Layout": "layout",
    "RopeStyle": "rope",
    "RowCounts": "engine_facts",
    "Segment": "layout",
    "SegmentTable": "layout",
    "SlotOrder": "slots",
    "paged": "engine_shapes",
    "without_heads": "engine_shapes",
}
"""The module of `dsa_contracts.dsa` that has each name."""

__all__ = [  # noqa: PLE0604 - the core's names are in its own list
    *core.__all__,
    "CpBatch",
    "GivenLayout",
    "KvParts",
    "Layout",
    "RopeStyle",
    "RowCounts",
    "Segment",
    "SegmentTable",
    "SlotOrder",
    "paged",
    "without_heads",
]


def __getattr__(name: str) -> object:
    """Import a name of the vocabulary when it is first asked for."""
    if name not in _VOCABULARY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"dsa_contracts.dsa.{_VOCABULARY[name]}"), name)
    globals()[name] = found
    return found
