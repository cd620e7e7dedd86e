"""The words that contracts are written in, with the meaning that stands beside each definition."""

import ast
import inspect
from dataclasses import dataclass
from itertools import pairwise
from types import ModuleType

from dsa_contracts.core.marks import Dim, dim_name
from dsa_contracts.dsa import dims, states, typevars
from dsa_cp.tools.review.contract_facts import variable_text


@dataclass(frozen=True)
class Word:
    """A word and its meaning; `stands_for` is what a type variable may be, empty for other words."""

    name: str
    meaning: str
    stands_for: str = ""


def variable_words() -> list[Word]:
    """Return the type variables, by name, with the text under each definition."""
    said = _texts_under_assignments(states) | _texts_under_assignments(typevars)
    names = sorted(typevars.__all__)
    return [Word(name, said.get(name, ""), variable_text(getattr(typevars, name))) for name in names]


def dim_words() -> list[Word]:
    """Return the dims in the order of their definition."""
    found = [dim for dim in vars(dims).values() if isinstance(dim, type) and issubclass(dim, Dim) and dim is not Dim]
    return [Word(dim_name(dim), inspect.cleandoc(dim.__doc__ or "")) for dim in found]


def _texts_under_assignments(module: ModuleType) -> dict[str, str]:
    """Return the string that follows each assignment of a module, by the assigned name."""
    body = ast.parse(inspect.getsource(module)).body
    said = {}
    for statement, below in pairwise(body):
        if isinstance(statement, ast.Assign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    said[target.id] = str(below.value.value)
    return said
