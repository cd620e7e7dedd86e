"""The rule about dims: a name that stands once ties nothing, and any size fits it."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from dsa_contracts.core.marks import Dim
from dsa_contracts.dsa.dims import Nnz, NnzGathered, NnzLocal, NnzPadded, NumRequests
from dsa_cp.tools.review.rules.findings import Finding, Rule, finding
from dsa_cp.tools.review.rules.named_tensors import Names, names_of, tensors_in
from dsa_cp.tools.review.rules.sources import Tree
from dsa_cp.tools.review.rules.stubs import CONTRACT, BoundFunction, all_bound, last_name, texts

_BOUND_BY_BATCH = frozenset(dim.__name__ for dim in (Nnz, NnzLocal, NnzPadded, NnzGathered, NumRequests))
CALL_DIMS = frozenset(dim.__name__ for dim in Dim.__subclasses__() if dim.varies)
"""Class names of dims that may differ between the calls of a batch, so that another stage's use of the name ties nothing."""


def untied(tree: Tree) -> Iterator[Finding]:
    """Yield dims of contracts that no other tensor, no other stage and no invariant ties."""
    contracts = list(all_bound(tree, CONTRACT))
    invariants = _invariant_texts(tree)
    names = names_of(tree)
    uses = [(bound, list(_dims(bound, names))) for bound in contracts]
    scopes = {bound.source.path.parent: _bound_by_scopes(tree, bound.source.path.parent) for bound in contracts}
    stages = Counter(name for _, dims in uses for name in {name for name, _, _ in dims})
    for bound, dims in uses:
        count = Counter(name for name, _, _ in dims)
        tied = set(_named_by_invariants(bound, invariants))
        for name, param, node in dims:
            is_known = name in _BOUND_BY_BATCH or name in names.variables or name in scopes[bound.source.path.parent]
            is_shared = stages[name] > 1 and name not in CALL_DIMS
            if count[name] == 1 and not is_known and not is_shared and param not in tied:
                text = f"{bound.function.name}: dim {name} of {param} stands once; nothing says how large it is"
                yield finding(bound.source, node, "REV010", text)


def _bound_by_scopes(tree: Tree, folder: Path) -> set[str]:
    """Return the dims that the scopes of a folder bind: the keys of what they give to `Scope.__init__`, or to `Scope`."""
    calls = (
        node
        for source in tree.sources
        if source.path.parent == folder
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and last_name(node.func) in ("__init__", "Scope")
    )
    given = (arg for call in calls for arg in call.args if isinstance(arg, ast.Dict))
    return {name for sizes in given for key in sizes.keys if key is not None and (name := last_name(key))}


def _dims(bound: BoundFunction, names: Names) -> Iterator[tuple[str, str, ast.expr]]:
    """Yield each dim of a contract's tensors: its name, the parameter, and the node."""
    for param, hint in _named_hints(bound):
        for tensor, dims in tensors_in(hint, names):
            own = set(ast.walk(tensor))
            for dim in dims:
                name = last_name(dim)
                if name is not None:
                    yield name, param, dim if dim in own else tensor


def _named_hints(bound: BoundFunction) -> Iterator[tuple[str, ast.expr]]:
    """Yield the annotations of a contract by name; return values have the names that `returns=` gives them."""
    given = next((keyword.value for keyword in bound.call.keywords if keyword.arg == "returns"), None)
    names = list(texts(given)) if given is not None else []
    for name, hint in bound.hints:
        if name != "return":
            yield name, hint
        elif len(names) > 1 and isinstance(hint, ast.Subscript) and isinstance(hint.slice, ast.Tuple):
            yield from zip(names, hint.slice.elts, strict=False)
        else:
            yield names[0] if names else name, hint


def _invariant_texts(tree: Tree) -> dict[str, list[str]]:
    """Return the texts that each function of the tree contains, by its name: a factory of an invariant names its subjects."""
    return {function.name: list(texts(function)) for source in tree.code for function in source.functions}


def _named_by_invariants(bound: BoundFunction, invariants: dict[str, list[str]]) -> Iterator[str]:
    """Yield the texts in the invariants of a contract, and in the functions that make them: among them parameter names."""
    for keyword in bound.call.keywords:
        if keyword.arg in ("requires", "ensures"):
            yield from texts(keyword.value)
            for node in ast.walk(keyword.value):
                if isinstance(node, ast.Call):
                    yield from invariants.get(last_name(node.func) or "", ())


UNTIED_DIM = Rule(
    "REV010",
    "no dim of a contract stands once with nothing that ties it",
    "any size fits a name that is used once: it looks like a check and is none",
    False,
    untied,
)
