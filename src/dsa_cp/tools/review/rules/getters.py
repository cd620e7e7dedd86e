"""The rule about hidden inputs: a stage takes all it needs as parameters."""

import ast
import re
from collections.abc import Iterator

from dsa_cp.tools.review.rules.findings import Finding, Rule, finding
from dsa_cp.tools.review.rules.sources import Source, Tree, dotted
from dsa_cp.tools.review.rules.stubs import bound_functions

_GETTER = re.compile(r"(?:get|current|fetch|global)_[a-z]\w*")
_ALWAYS = frozenset({"getenv", "current_stream", "current_device", "get_rank", "get_world_size"})
_TYPING = frozenset({"get_args", "get_origin", "get_type_hints"})
_MUTATORS = frozenset({"append", "extend", "insert", "pop", "remove", "clear", "update", "setdefault", "add", "discard"})


def hidden_inputs(tree: Tree) -> Iterator[Finding]:
    """Yield what functions of stage modules read besides their parameters."""
    for source in tree.code:
        if bound_functions(source):
            state = _changing_names(source)
            for function in source.functions:
                yield from _in_function(source, function, state)


def _in_function(source: Source, function: ast.FunctionDef, state: frozenset[str]) -> Iterator[Finding]:
    own = _own_names(function)
    for node in ast.walk(function):
        if isinstance(node, ast.Global):
            yield finding(source, node, "REV005", f"{function.name} changes global {', '.join(node.names)}")
        elif isinstance(node, ast.Call) and _is_getter(node, own):
            text = f"{function.name} reads {dotted(node.func)}(); make what it gives a parameter"
            yield finding(source, node, "REV005", text)
        elif isinstance(node, ast.Attribute) and dotted(node) == "os.environ":
            yield finding(source, node, "REV005", f"{function.name} reads os.environ; make the value a parameter")
        elif isinstance(node, ast.Name) and node.id in state - own and isinstance(node.ctx, ast.Load):
            text = f"{function.name} uses {node.id}, which this module changes; make it a parameter"
            yield finding(source, node, "REV005", text)


def _own_names(function: ast.FunctionDef) -> frozenset[str]:
    """Return the parameters and local names of a function, those of functions in it included."""
    shared = {name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names}
    args = [node.arg for node in ast.walk(function) if isinstance(node, ast.arg)]
    names = [node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    return frozenset({*args, *names} - shared)


def _is_getter(call: ast.Call, own: frozenset[str]) -> bool:
    """Whether a call reads something that was not passed: a getter without arguments, or one that is known."""
    name = dotted(call.func)
    root, _, last = name.partition(".")[0], None, name.rpartition(".")[2]
    if root in own or last in _TYPING:
        return False
    return last in _ALWAYS or (_GETTER.fullmatch(last) is not None and not call.args and not call.keywords)


def _changing_names(source: Source) -> frozenset[str]:
    """Return the names of a module's top level that its functions change."""
    top = [node for node in source.tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    targets = [target for node in top for target in (node.targets if isinstance(node, ast.Assign) else [node.target])]
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    changed: set[str] = set()
    for function in source.functions:
        changed |= set(_changed_in(function)) - _own_names(function)
    return frozenset(names & changed)


def _changed_in(function: ast.FunctionDef) -> Iterator[str]:
    """Yield the names whose value a function changes in place, or rebinds as a global."""
    for node in ast.walk(function):
        if isinstance(node, ast.Global):
            yield from node.names
        elif isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            if isinstance(node.value, ast.Name):
                yield node.value.id
        elif isinstance(node, ast.Call):
            name, _, method = dotted(node.func).partition(".")
            if method in _MUTATORS:
                yield name


HIDDEN_INPUT = Rule(
    "REV005",
    "a stage reads nothing but its parameters",
    "behind a getter the same call means another thing on another rank, and nothing runs with plain arguments",
    False,
    hidden_inputs,
)
