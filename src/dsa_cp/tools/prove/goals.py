"""What an obligation is made of: goals, each some facts that hold where what is given holds."""

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dsa_contracts.dsa.layout import Layout
from dsa_cp.tools.prove.cut import Cut
from dsa_cp.tools.prove.right import BETWEEN_REQUESTS
from dsa_cp.tools.prove.terms import Ask, Claim, Term

RELATIONS: dict[str, Callable[[Term, Term], Claim]] = {"=": operator.eq, ">=": operator.ge, "<": operator.lt}
"""How a fact may relate what a formula says to what is right."""


@dataclass(frozen=True, eq=False)
class Fact:
    """A value, and what it must be.

    Attributes:
        what: what the value is, for people.
        says: what the formulas make of it.
        relation: how it must relate to `right`; a key of RELATIONS.
        right: what the fact is measured by.
    """

    what: str
    says: Term
    relation: str
    right: Term

    @property
    def claim(self) -> Claim:
        """Whether the fact holds."""
        return RELATIONS[self.relation](self.says, self.right)


@dataclass(frozen=True, eq=False)
class Goal:
    """Facts that must hold for all lengths under which everything given holds.

    Attributes:
        about: what the facts are about, for people.
        given: claims; that the lengths of a batch are legal is always given.
        facts: what must hold.
        shown: values that a counter-example names besides lengths, by name.
    """

    about: str
    given: tuple[Claim, ...]
    facts: tuple[Fact, ...]
    shown: tuple[tuple[str, Term], ...] = ()


Goals = Callable[[Cut, Ask], Iterator[Goal]]
"""Makes goals for a cut; `Ask` gives values that the goals are for all of."""


def _any_layout(layout: Layout) -> bool:
    return True


@dataclass(frozen=True)
class Obligation:
    """A fact about every batch.

    Attributes:
        name: the fact.
        statement: the fact in a sentence.
        of_request: goals about one request among any others, or about ranks that hold any rows.
        of_batch: goals about all requests of a batch.
        applies: whether a layout has what the fact is about.
        tells_decodes: whether decodes among the requests make other goals, where a layout puts them elsewhere.
        loosens: rules that are loosened for goals of `of_request`; proven so, they hold for any number of requests.
    """

    name: str
    statement: str
    of_request: tuple[Goals, ...] = ()
    of_batch: tuple[Goals, ...] = ()
    applies: Callable[[Layout], bool] = _any_layout
    tells_decodes: bool = False
    loosens: tuple[str, ...] = (*BETWEEN_REQUESTS, "pad_target")
