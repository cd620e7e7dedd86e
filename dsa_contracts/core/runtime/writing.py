"""Functions that are written out as source for one contract and compiled.

A loop over the arguments of a call costs more than what it looks at, and each stage of each layer pays it. The source depends
on which arguments there are and not on what they are, so that few are compiled.
"""

from collections.abc import Callable
from functools import cache
from types import CodeType
from typing import Any


def written(head: str, lines: list[str], known: dict[str, object]) -> Callable[..., Any]:
    """Return the function with this head and body, which reads `known` as its globals."""
    space = dict(known)
    exec(_compiled("\n    ".join([f"def {head}:", *lines])), space)
    function: Callable[..., Any] = space[head.partition("(")[0]]  # type: ignore[assignment]
    return function


@cache
def _compiled(source: str) -> CodeType:
    return compile(source, "<written for a contract>", "exec")
