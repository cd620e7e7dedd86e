"""Rules about names: a name leads to one module, and to one class."""

import ast
from collections.abc import Iterator

from dsa_cp.tools.review.rules.findings import Finding, Rule, finding
from dsa_cp.tools.review.rules.sources import Source, Tree
from dsa_cp.tools.review.rules.stage_files import CONTRACTS, IMPLEMENTATIONS

_SPECIAL = frozenset({"__init__", "__main__"})
_DEVICE_CODE = ("src", "dsa_cp", "triton_jit")
"""Device code is named after the module whose work it does on a device."""


def _package(tree: Tree) -> Iterator[Source]:
    """Yield the modules of the house that others import."""
    yield from tree.under("dsa_contracts")
    yield from tree.under("src")


def doubled_stems(tree: Tree) -> Iterator[Finding]:
    """Yield modules that have the name of another: all but the first."""
    known: dict[str, Source] = {}
    for source in _package(tree):
        is_named_after = source.place[:-1] in (IMPLEMENTATIONS, _DEVICE_CODE)
        if source.stem in _SPECIAL or is_named_after:
            continue
        first = known.setdefault(source.stem, source)
        if first is not source:
            text = f"{source.stem}.py is also {'/'.join(first.place)}; say in the name what tells them apart"
            yield finding(source, None, "REV016", text)
    stages = {source.stem for source in tree.under(*CONTRACTS)}
    for source in tree.under(*IMPLEMENTATIONS):
        if source.stem in known and source.stem not in stages:
            text = f"{source.stem}.py is also {'/'.join(known[source.stem].place)}; say in the name what tells them apart"
            yield finding(source, None, "REV016", text)


def doubled_classes(tree: Tree) -> Iterator[Finding]:
    """Yield classes that have the name of a class in another module: all but the first."""
    known: dict[str, Source] = {}
    for source in _package(tree):
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef):
                first = known.setdefault(node.name, source)
                if first is not source:
                    text = f"class {node.name} is also in {'/'.join(first.place)}; say in the name what tells them apart"
                    yield finding(source, node, "REV017", text)


ONE_MODULE = Rule(
    "REV016",
    "no two modules have one name; a stage's files, and device code, are named after what they implement",
    "who looks for a module by its name finds the other one",
    True,
    doubled_stems,
)
ONE_CLASS = Rule(
    "REV017",
    "no two modules define classes of one name",
    "in an import list or a message nobody sees which of the two is meant",
    True,
    doubled_classes,
)
