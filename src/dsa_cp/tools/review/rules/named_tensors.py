"""The dims of annotations as their syntax shows them, where a tensor may stand under a name, as in `KvCache[F]`."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dsa_contracts.dsa import aliases, typevars
from dsa_cp.tools.review.rules.sources import Tree
from dsa_cp.tools.review.rules.stubs import last_name

VARIABLES = frozenset(typevars.__all__)
_MAKERS = ("TypeVar", "TypeVarTuple")


@dataclass(frozen=True)
class Names:
    """What a reader must know to write an annotation out.

    Attributes:
        tensors: aliases, with what they stand for.
        variables: type variables, whose place an alias's parameters take.
    """

    tensors: dict[str, ast.expr]
    variables: frozenset[str]

    def dims(self, hint: ast.expr) -> list[ast.expr] | None:
        """Return the dims of one tensor as they are written, or as its alias has them; None for anything else."""
        base, params = (hint.value, _elements(hint.slice)) if isinstance(hint, ast.Subscript) else (hint, [])
        name = last_name(base) or ""
        if name == "Ten" and params:
            return params[4:]
        meant = self.tensors.get(name)
        inner = None if meant is None else self.dims(meant)
        if meant is None or inner is None:
            return None
        variables = [found for found in dict.fromkeys(_names_in(meant)) if found in self.variables]
        given = dict(zip(variables, params, strict=False))
        # Only the last variable of an alias can stand for several dims, as `*Ds` does: what is left over is its.
        rest = params[len(variables) - 1 :] if variables else []
        return [put for dim in inner for put in (rest if isinstance(dim, ast.Starred) else [_given(dim, given)])]


def names_of(tree: Tree) -> Names:
    """Return the aliases and type variables of the files under review, and those of the vocabulary."""
    tensors, variables = dict(_vocabulary()), set(VARIABLES)
    for source in tree.code:
        tensors |= dict(_aliases(source.tree))
        for node in source.tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and last_name(node.value.func) in _MAKERS:
                variables |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return Names(tensors, frozenset(variables))


def tensors_in(hint: ast.expr, names: Names) -> Iterator[tuple[ast.expr, list[ast.expr]]]:
    """Yield the tensors that an annotation is, or is made of, each with its dims."""
    dims = names.dims(hint)
    if dims is not None:
        yield hint, dims
        return
    for inner in ast.iter_child_nodes(hint):
        if isinstance(inner, ast.expr):
            yield from tensors_in(inner, names)


def _given(dim: ast.expr, given: dict[str, ast.expr]) -> ast.expr:
    """Return what stands for a dim once the parameters of its alias are known."""
    return given.get(dim.id, dim) if isinstance(dim, ast.Name) else dim


def _elements(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]


def _names_in(node: ast.AST) -> Iterator[str]:
    """Yield the names in a node in the order in which they stand there."""
    if isinstance(node, ast.Name):
        yield node.id
    for inner in ast.iter_child_nodes(node):
        yield from _names_in(inner)


def _aliases(module: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names of a module that stand for a subscript, as an alias does, with what they stand for."""
    for node in module.body:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Subscript):
            yield from ((target.id, node.value) for target in targets if isinstance(target, ast.Name))


@cache
def _vocabulary() -> tuple[tuple[str, ast.expr], ...]:
    """Return the aliases of the vocabulary, read from its source."""
    return tuple(_aliases(ast.parse(Path(aliases.__file__).read_text(encoding="utf-8"))))
