"""Contracts and implementations as their syntax trees show them: functions under `@contract(...)` and `@stage(...)`."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dsa_cp.tools.review.rules.sources import Source, Tree

CONTRACT = "contract"
STAGE = "stage"


@dataclass(frozen=True)
class BoundFunction:
    """One function under a decorator of the house.

    Attributes:
        source: its file.
        function: the function.
        kind: `contract` or `stage`.
        call: the decorator.
    """

    source: Source
    function: ast.FunctionDef
    kind: str
    call: ast.Call

    @property
    def stage_name(self) -> str:
        """The stage: of a stub its own name, of an implementation the name of the stub that it is bound to."""
        if self.kind == CONTRACT or not self.call.args:
            return self.function.name
        return last_name(self.call.args[0]) or self.function.name

    @property
    def hints(self) -> list[tuple[str, ast.expr]]:
        """Parameters with their annotations, then the return annotation under the name `return`."""
        arguments = self.function.args
        found = [(arg.arg, arg.annotation) for arg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        return [(name, hint) for name, hint in (*found, ("return", self.function.returns)) if hint is not None]


def last_name(node: ast.expr) -> str | None:
    """Return the last name of `a.b.c` or `c`, None for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def bound_functions(source: Source) -> list[BoundFunction]:
    """Return the contracts and implementations of a file; a file that imports nothing of the house has none."""
    if not any(module.partition(".")[0] == "dsa_contracts" for module, _ in source.imports):
        return []
    found = []
    for function in source.functions:
        for call in function.decorator_list:
            name = last_name(call.func) if isinstance(call, ast.Call) else None
            if isinstance(call, ast.Call) and name in (CONTRACT, STAGE):
                found.append(BoundFunction(source, function, name, call))
    return found


def all_bound(tree: Tree, kind: str | None = None) -> Iterator[BoundFunction]:
    """Yield the contracts and implementations outside of tests, of one kind or of both."""
    for source in tree.code:
        for bound in bound_functions(source):
            if kind in (None, bound.kind):
                yield bound


def texts(node: ast.AST) -> Iterator[str]:
    """Yield the string constants under a node."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value
