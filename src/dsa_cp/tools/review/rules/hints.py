"""Rules about annotations of contracts and stages: they must say something at import, to all four readers."""

import ast
import builtins
from collections.abc import Iterator

from dsa_cp.tools.review.rules.findings import Finding, Rule, finding
from dsa_cp.tools.review.rules.sources import Source, Tree
from dsa_cp.tools.review.rules.stubs import BoundFunction, all_bound, bound_functions, last_name

_BUILTINS = frozenset(dir(builtins))


def postponed(tree: Tree) -> Iterator[Finding]:
    """Yield `from __future__ import annotations` in modules with contracts or stages."""
    for source in tree.code:
        for node in source.tree.body if bound_functions(source) else ():
            names = [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.ImportFrom) and node.module == "__future__" and "annotations" in names:
                text = "annotations are postponed here; a name that is imported for the checker alone becomes Any"
                yield finding(source, node, "REV008", text)


def unresolved(tree: Tree) -> Iterator[Finding]:
    """Yield annotations of contracts and stages that are missing, or use a name that does not exist at run time."""
    for bound in all_bound(tree):
        function = bound.function
        for arg in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs):
            if arg.annotation is None:
                yield finding(bound.source, arg, "REV009", f"{function.name}: {arg.arg} has no annotation")
        there, for_checker, has_star = _names_of(bound.source)
        for name, node in _used_names(bound):
            if name in there or name in _BUILTINS or has_star:
                continue
            why = "is imported under TYPE_CHECKING alone" if name in for_checker else "is not defined"
            yield finding(bound.source, node, "REV009", f"{function.name}: {name} in an annotation {why}")


def _used_names(bound: BoundFunction) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names that annotations use, those in quoted annotations included, each once."""
    seen = set()
    for _, hint in bound.hints:
        for node in ast.walk(hint):
            text = node.value if isinstance(node, ast.Constant) else None
            names = [node.id] if isinstance(node, ast.Name) else _quoted(text) if isinstance(text, str) else []
            for name in names:
                if name not in seen and isinstance(node, ast.expr):
                    seen.add(name)
                    yield name, node


def _quoted(text: str) -> list[str]:
    """Return the names in a quoted annotation."""
    try:
        return [node.id for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name)]
    except SyntaxError:
        return []


def _names_of(source: Source) -> tuple[set[str], set[str], bool]:
    """Return the names that a module has at run time, those it has for the checker alone, and whether it imports `*`."""
    there: set[str] = set()
    for_checker: set[str] = set()
    for statement in source.tree.body:
        if isinstance(statement, ast.If) and last_name(statement.test) == "TYPE_CHECKING":
            for inner in statement.body:
                for_checker |= set(_defined(inner))
            for inner in statement.orelse:
                there |= set(_defined(inner))
        else:
            there |= set(_defined(statement))
    return there, for_checker - there, "*" in there


def _defined(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement of a module's top level defines."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


POSTPONED = Rule(
    "REV008",
    "no postponed annotations beside contracts and stages",
    "together with an import for the checker alone they turn a hint into Any, silently",
    False,
    postponed,
)
UNRESOLVED = Rule(
    "REV009",
    "every annotation of a contract or stage is there and resolves at import",
    "an annotation that cannot be read is a contract that nobody checks",
    False,
    unresolved,
)
