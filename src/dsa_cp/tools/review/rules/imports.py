"""Rules about imports: one direction, and each backend library in one folder."""

import sys
from collections.abc import Iterator

from dsa_cp.tools.review.rules.findings import Finding, Rule, finding
from dsa_cp.tools.review.rules.sources import Source, Tree

_LAYERS = (
    ("dsa_contracts.core", 0),
    ("dsa_contracts.dsa", 1),
    ("dsa_contracts", 2),
    ("dsa_cp.layouts", 3),
    ("dsa_cp.comm", 3),
    ("dsa_cp.numerics", 3),
    ("dsa_cp.triton_jit", 3),
    ("dsa_cp.kernels", 4),
    ("dsa_cp.stages", 5),
    ("dsa_cp.layer", 6),
    ("dsa_cp.planner", 7),
    ("dsa_cp.engines", 8),
    ("dsa_cp.demo", 8),
    ("dsa_cp.tools", 9),
    ("dsa_cp.cli", 10),
    ("dsa_cp", 10),
    ("tests", 11),
)
"""Packages by layer, the longer name first; a module imports its own layer and those below."""
_CONTRACTS = 2
"""The highest layer of the contracts."""
_ALLOWED_IN_CONTRACTS = frozenset({"torch", "jaxtyping", "beartype", "dsa_contracts"}) | sys.stdlib_module_names
_ORDER = "core <- dsa <- contracts <- layouts, comm <- kernels <- stages <- layer <- planner <- engines, demo <- tools <- cli"
LIBRARIES = ("flashinfer", "triton", "flash_mla", "sglang", "torch.distributed")


def module_name(source: Source) -> str:
    """Return the name that a file of the house is imported by."""
    parts = source.place[1:] if source.place[0] == "src" else source.place
    return ".".join((*parts[:-1], source.stem)).removesuffix(".__init__")


def layer_of(module: str) -> int | None:
    """Return the layer of a module of the house, None for others."""
    return next((layer for name, layer in _LAYERS if module == name or module.startswith(f"{name}.")), None)


def against_direction(tree: Tree) -> Iterator[Finding]:
    """Yield imports of a higher layer, and imports of the contracts that are not theirs."""
    for source in (*tree.under("dsa_contracts"), *tree.under("src")):
        own, seen = layer_of(module_name(source)), set()
        for module, node in source.imports:
            place, layer = (module.partition(".")[0], node), layer_of(module)
            if own is None or place in seen:
                continue
            if layer is not None and layer > own:
                seen.add(place)
                text = f"{module_name(source)} imports {module}; imports run {_ORDER}"
                yield finding(source, node, "REV006", text)
            elif own <= _CONTRACTS and place[0] not in _ALLOWED_IN_CONTRACTS:
                seen.add(place)
                text = f"dsa_contracts imports {place[0]}; besides the standard library it imports torch, jaxtyping, beartype"
                yield finding(source, node, "REV006", text)


def in_several_places(tree: Tree) -> Iterator[Finding]:
    """Yield imports of a backend library outside of the one folder that has most of them."""
    for library in LIBRARIES:
        places: dict[str, list[tuple[Source, object]]] = {}
        for source in (*tree.under("dsa_contracts"), *tree.under("src")):
            nodes = [node for module, node in source.imports if module == library or module.startswith(f"{library}.")]
            if nodes:
                places.setdefault(_place(source), []).append((source, nodes[0]))
        home = max(places, key=lambda place: len(places[place]), default="")
        for place, found in places.items():
            for source, node in found if place != home else ():
                text = f"{library} is imported here and in {home}; each backend library has one folder"
                yield finding(source, node, "REV007", text)


def _place(source: Source) -> str:
    """Return the place of an import: its folder."""
    return "/".join(source.place[:-1])


DIRECTION = Rule(
    "REV006",
    f"imports run {_ORDER}",
    "what must hold may not depend on how it is done",
    True,
    against_direction,
)
ONE_PLACE = Rule(
    "REV007",
    "flashinfer, triton, flash_mla, sglang and torch.distributed are each imported in one folder",
    "where a library is everywhere, nothing runs without it and nobody can say what is used of it",
    True,
    in_several_places,
)
