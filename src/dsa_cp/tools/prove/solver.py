"""z3: proves a goal for all lengths, or finds the smallest lengths under which it is false. Nothing else imports z3."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from time import monotonic
from typing import Any

from dsa_contracts.core.errors import ArgumentError
from dsa_cp.layouts.formulas import Arithmetic
from dsa_cp.tools.prove.goals import Fact, Goal
from dsa_cp.tools.prove.results import Counterexample, Outcome
from dsa_cp.tools.prove.terms import Claim, Logic, Term


def _import_z3() -> Any:
    """Return the z3 module, which has no types; raises ArgumentError DSA602 naming the extra to install."""
    try:
        return import_module("z3")
    except ModuleNotFoundError as error:
        if error.name != "z3":
            raise
        raise ArgumentError("proofs need z3: pip install 'dsa-contracts[prove]'") from error


z3 = _import_z3()


def _divide(value: Term, divisor: Term) -> Term:
    """Return the quotient rounded down; z3's `/` on integers rounds so for the positive divisors that formulas have."""
    return value // divisor if isinstance(value, int) and isinstance(divisor, int) else value / divisor


def _smaller(left: Term, right: Term) -> Term:
    return _choose(left <= right, left, right)


def _larger(left: Term, right: Term) -> Term:
    return _choose(left >= right, left, right)


def _choose(claim: Claim, yes: Term, no: Term) -> Term:
    return (yes if claim else no) if isinstance(claim, bool) else z3.If(claim, yes, no)


def _both(left: Claim, right: Claim) -> Claim:
    if isinstance(left, bool):
        return right if left else False
    if isinstance(right, bool):
        return left if right else False
    return z3.And(left, right)


@contextmanager
def no_truth_values() -> Iterator[None]:
    """While open, z3 claims have no truth value, so that a formula which branches on one raises TypeError.

    z3 itself gives `a == b` one: whether the two are the same term. A formula with `if length == 5` would be proven of its
    other branch alone.
    """

    def refuse(claim: Any) -> bool:
        raise TypeError(f"{claim} is for all lengths, and neither true nor false")

    theirs = z3.AstRef.__bool__
    z3.AstRef.__bool__ = refuse
    try:
        yield
    finally:
        z3.AstRef.__bool__ = theirs


Z3_LOGIC = Logic(Arithmetic(_divide, _smaller, _larger, _choose), _both)


class Unknowns:
    """The lengths of a batch and whatever else goals are for all of, as z3 integers."""

    def __init__(self, num_requests: int, decodes: tuple[bool, ...] = ()) -> None:
        """Make the lengths of a batch that may be any legal ones; which of its requests are decodes is given."""
        self.decodes = decodes
        self.extend = self._lens("extend", num_requests)
        self.prefix = self._lens("prefix", num_requests)
        self.padded = self._lens("padded", num_requests)
        self.row_alignment = z3.Int("row_alignment")
        self.legal: list[Claim] = [self.row_alignment >= 1]
        self.legal += [length >= 1 for length in self.extend] + [length >= 0 for length in self.prefix]
        self.legal += [padded >= extend for padded, extend in zip(self.padded, self.extend, strict=True)]

    @staticmethod
    def _lens(name: str, count: int) -> tuple[Term, ...]:
        return tuple(z3.Int(f"{name}_{request}") for request in range(count))

    def ask(self, name: str, least: int | None = None) -> Term:
        """Return a new value, no smaller than `least` where that is given; see `Ask`."""
        value = z3.FreshInt(name)
        if least is not None:
            self.legal.append(value >= least)
        return value

    def in_order_of_size(self, goal: Goal) -> Iterator[tuple[Term, int]]:
        """Yield what a counter-example is to have the least of, most important first, each with its lower bound."""
        yield self.row_alignment, 1
        yield sum(self.padded) + sum(self.prefix), len(self.padded)
        yield sum(self.padded) - sum(self.extend), 0
        for length in (*self.padded, *self.extend):
            yield length, 1
        for value in (*self.prefix, *(value for _, value in goal.shown)):
            yield value, 0


def attempt(goal: Goal, unknowns: Unknowns, deadline: float) -> Outcome:
    """Return whether a goal is true for all lengths.

    Args:
        goal: the goal.
        unknowns: what its terms are made of.
        deadline: when to give up, on the clock of `time.monotonic`.
    """
    if all(_is_plain(fact) for fact in goal.facts):
        return Outcome.PROVEN
    solver = _denial(goal, unknowns, deadline)
    found = solver.check()
    return Outcome.PROVEN if found == z3.unsat else Outcome.REFUTED if found == z3.sat else Outcome.UNKNOWN


def _is_plain(fact: Fact) -> bool:
    """Whether a fact is true as it is written: an equation of a term with itself, or of two equal numbers or texts."""
    claim = fact.claim
    if isinstance(claim, bool):
        return claim
    are_terms = z3.is_expr(fact.says) and z3.is_expr(fact.right)
    return fact.relation == "=" and are_terms and bool(fact.says.eq(fact.right))


def _denial(goal: Goal, unknowns: Unknowns, deadline: float) -> Any:
    """Return a solver that is satisfied by what makes the goal false."""
    solver = z3.Solver()
    solver.set("timeout", max(1, int(1000 * (deadline - monotonic()))))
    solver.add(*unknowns.legal, *goal.given)
    open_facts = [fact.claim for fact in goal.facts if not _is_plain(fact)]
    solver.add(z3.Not(z3.And(z3.BoolVal(True), *open_facts)))
    return solver


def smallest(goal: Goal, unknowns: Unknowns, deadline: float, best: Counterexample | None = None) -> Counterexample | None:
    """Return the smallest counter-example of a goal, None where none was found.

    Args:
        goal: the goal.
        unknowns: what its terms are made of.
        deadline: when to settle for the smallest that was found till then.
        best: look for a smaller one than this only.
    """
    if all(_is_plain(fact) for fact in goal.facts):
        return None
    solver = _denial(goal, unknowns, deadline)
    if best is not None:
        alignment, total = unknowns.row_alignment, sum(unknowns.padded) + sum(unknowns.prefix)
        is_less = z3.And(alignment == best.row_alignment, total < best.total)
        solver.add(z3.Or(alignment < best.row_alignment, is_less))
    if solver.check() != z3.sat:
        return None
    for value, low in unknowns.in_order_of_size(goal):
        _keep_least(solver, value, low)
    return _read(goal, unknowns, solver.model())


def _keep_least(solver: Any, value: Term, low: int) -> None:
    """Bind a value to the least that a satisfied solver allows; the solver is satisfied after it, by a model it holds."""
    high, step = _value_in(solver.model(), value), 1
    while low < high:
        bound = min(low + step - 1, (low + high) // 2)
        solver.push()
        solver.add(value <= bound)
        if solver.check() == z3.sat:
            high = _value_in(solver.model(), value)
        else:
            low, step = bound + 1, 2 * step
        solver.pop()
    solver.add(value <= high)
    solver.check()


def _value_in(model: Any, value: Term) -> Any:
    """Return a term's value in a model; numbers and texts are their own."""
    return int(model.eval(value, model_completion=True).as_long()) if z3.is_expr(value) else value


def _read(goal: Goal, unknowns: Unknowns, model: Any) -> Counterexample:
    """Return what a model says, with the first fact that is false in it."""

    def number(value: Term) -> Any:
        return _value_in(model, value)

    def is_false(fact: Fact) -> bool:
        claim = fact.claim
        return not claim if isinstance(claim, bool) else z3.is_false(model.eval(claim, model_completion=True))

    fact = next(fact for fact in goal.facts if is_false(fact))
    return Counterexample(
        tuple(map(number, unknowns.extend)),
        tuple(map(number, unknowns.prefix)),
        tuple(map(number, unknowns.padded)),
        number(unknowns.row_alignment),
        goal.about,
        tuple((name, number(value)) for name, value in goal.shown),
        fact.what,
        number(fact.says),
        fact.relation,
        number(fact.right),
        unknowns.decodes if any(unknowns.decodes) else (),
    )
