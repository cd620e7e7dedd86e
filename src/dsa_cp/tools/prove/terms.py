"""The values that a composition of formulas runs on, ints or z3 integer terms, and what it needs beyond `Arithmetic`."""

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from dsa_contracts.dsa.formulas import INTS, Arithmetic

Term = Any
"""An int or a z3 integer term."""

Claim = Any
"""A bool or a z3 Boolean term."""


class Logic(NamedTuple):
    """What a composition does with values of one kind.

    Attributes:
        arithmetic: what the formulas need.
        both: whether two claims hold.
    """

    arithmetic: Arithmetic[Any]
    both: Callable[[Claim, Claim], Claim]

    def choose(self, claim: Claim, yes: Term, no: Term) -> Term:
        """Return the first value where the claim holds, else the second."""
        return self.arithmetic.choose(claim, yes, no)

    def largest(self, values: Sequence[Term]) -> Term:
        """Return the largest of one value or more."""
        found = values[0]
        for value in values[1:]:
            found = self.arithmetic.larger(found, value)
        return found


INT_LOGIC = Logic(INTS, operator.and_)


class Ask(Protocol):
    """Gives a value that may be any int, under a name that a counter-example can show."""

    def __call__(self, name: str, least: int | None = None) -> Term:
        """Return a new value; with `least` it is no smaller than that."""
