"""Rules about the length of functions, and about files that are no Python."""

import ast
from collections.abc import Iterator

from dsa_cp.tools.review.rules.findings import Finding, Rule, finding
from dsa_cp.tools.review.rules.sources import Tree

FUNCTION_LINES = 40
TRANSCRIPTS = "record_"
"""How scripts are called that drive another program and note what it did: one step after the other, as it runs."""


def unreadable(tree: Tree) -> Iterator[Finding]:
    """Yield files that do not parse."""
    for source in tree.sources:
        if source.error is not None:
            error = source.error
            yield Finding(source.shown, error.lineno or 1, error.offset or 1, "REV000", f"no Python: {error.msg}")


def long_functions(tree: Tree) -> Iterator[Finding]:
    """Yield functions whose body is too long; signature and docstring, which are the contract, are not counted."""
    for source in tree.sources:
        if source.stem.startswith(TRANSCRIPTS):
            continue
        for function in source.functions:
            lines = body_lines(function)
            if lines > FUNCTION_LINES:
                text = f"{function.name} has {lines} lines in its body; split what is over {FUNCTION_LINES}"
                yield finding(source, function, "REV014", text)


def body_lines(function: ast.FunctionDef) -> int:
    """Return the lines of a function's body without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


NO_PYTHON = Rule(
    "REV000", "every file parses", "what does not parse is not reviewed, and no other rule speaks of it", False, unreadable
)
LONG_FUNCTION = Rule(
    "REV014",
    f"no function body is over {FUNCTION_LINES} lines, signature and docstring not counted",
    "a long function does two things",
    False,
    long_functions,
)
