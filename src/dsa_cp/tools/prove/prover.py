"""Compares code with formulas; then goes through obligations: one request among any others, then so many requests."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from time import monotonic

from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.dsa.layout import Layout
from dsa_cp.layouts import ChunkedLayout, Decodes, symbolic_half
from dsa_cp.tools.prove.agreement import compare
from dsa_cp.tools.prove.balance import CHUNKS_ARE_MIRRORED
from dsa_cp.tools.prove.cut import Cut, Rules
from dsa_cp.tools.prove.goals import Goal, Goals, Obligation
from dsa_cp.tools.prove.obligations import OBLIGATIONS
from dsa_cp.tools.prove.results import Counterexample, Outcome, Result
from dsa_cp.tools.prove.right import RIGHT, loosened
from dsa_cp.tools.prove.solver import Z3_LOGIC, Unknowns, attempt, no_truth_values, smallest, z3
from dsa_cp.tools.prove.stage_fit import STAGES_FIT
from dsa_cp.tools.prove.wrong import Variant


@dataclass
class _Attempt:
    """What has come of some goals so far."""

    goals: int = 0
    counterexample: Counterexample | None = None
    is_refuted: bool = False
    open_goal: str = ""

    @property
    def outcome(self) -> Outcome:
        """How the goals stand together; without any there is nothing proven."""
        if self.is_refuted:
            return Outcome.REFUTED
        return Outcome.PROVEN if self.goals and not self.open_goal else Outcome.UNKNOWN


@dataclass(frozen=True)
class Question:
    """What to prove: an obligation of a layout on so many ranks, of the code that runs or of a wrong variant of it."""

    obligation: Obligation
    layout: Layout
    cp_size: int
    variant: Variant | None = None

    @property
    def rules(self) -> Rules:
        """The rules in question."""
        return RIGHT if self.variant is None else self.variant.rules

    def cut(self, unknowns: Unknowns, rules: Rules) -> Cut:
        """Return a cut of a batch of unknown lengths."""
        lens = (unknowns.extend, unknowns.prefix, unknowns.padded)
        return Cut(self.layout, self.cp_size, *lens, unknowns.row_alignment, Z3_LOGIC, rules, unknowns.decodes)

    def mixes(self, requests: int) -> list[tuple[bool, ...]]:
        """Return which of so many requests are decodes, in every way that makes other goals.

        How many are is what matters: goals do not tell requests of one kind apart, and where decodes stand among
        prefills changes their slots by a renaming of requests. Decodes come last here, so that slots reorder them.
        """
        half = symbolic_half(self.layout)
        if self.obligation.tells_decodes and isinstance(half, ChunkedLayout) and half.decodes is not Decodes.AS_PREFILLS:
            return [(False,) * (requests - count) + (True,) * count for count in range(requests + 1)]
        return [(False,) * requests]


def questions(layouts: Sequence[Layout], cp_sizes: Sequence[int], variant: Variant | None = None) -> list[Question]:
    """Return every obligation that a layout has, on every group size; of a variant, the one that it breaks.

    Raises:
        ArgumentError: DSA602, a layout has no formulas.
    """
    for layout in layouts:
        symbolic_half(layout)
    asked = (*OBLIGATIONS, CHUNKS_ARE_MIRRORED, STAGES_FIT) if variant is None else (variant.obligation,)
    return [
        Question(obligation, layout, cp_size, variant)
        for layout in layouts
        for obligation in asked
        if obligation.applies(layout)
        for cp_size in cp_sizes
    ]


def prove(
    layouts: Sequence[Layout],
    cp_sizes: Sequence[int],
    requests: Sequence[int],
    timeout_s: float,
    variant: Variant | None = None,
    on_step: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[Result]:
    """Yield that the code of each layout agrees with its formulas, and then what is proven of these; or what is false.

    Of a layout whose code and formulas differ nothing else is looked at: a proof would be about what does not run.

    Args:
        layouts: what to prove; each has formulas.
        cp_sizes: group sizes.
        requests: numbers of requests of a batch.
        timeout_s: seconds for an obligation of one layout, group size and number of requests.
        variant: a wrong formula in the place of a right one, of which alone something is asked; code has no such variant.
        on_step: told how many of how many steps are done.

    Raises:
        ArgumentError: DSA602, a layout has no formulas, or they do not run on z3 terms.
    """
    asked = questions(layouts, cp_sizes, variant)
    pairs = [] if variant else list(product(layouts, cp_sizes))
    lied: set[str] = set()
    for done, (layout, cp_size) in enumerate(pairs):
        on_step(done, len(pairs) + len(asked))
        result = compare(layout, cp_size)
        lied |= {layout.name} if result.outcome is Outcome.REFUTED else set()
        yield result
    for done, question in enumerate(asked, start=len(pairs)):
        on_step(done, len(pairs) + len(asked))
        if question.layout.name not in lied:
            yield from answer(question, requests, timeout_s)


def answer(question: Question, requests: Sequence[int], timeout_s: float) -> Iterator[Result]:
    """Yield a result for each number of requests, or one for any number where goals about one request are all there are.

    Args:
        question: what to prove.
        requests: numbers of requests of a batch.
        timeout_s: seconds for each result.
    """
    obligation, start = question.obligation, monotonic()
    one = _look(question, obligation.of_request, None, start + timeout_s)
    is_proven = one.outcome is Outcome.PROVEN
    if is_proven and not obligation.of_batch:
        yield _result(question, None, one, start)
        return
    for count in requests:
        goals = obligation.of_batch if is_proven else (*obligation.of_request, *obligation.of_batch)
        found = _look(question, goals, count, monotonic() + timeout_s)
        found.goals += one.goals if is_proven else 0
        yield _result(question, count, found, start)
        start = monotonic()


def _result(question: Question, requests: int | None, found: _Attempt, start: float) -> Result:
    """Return the result of an attempt that began at `start`."""
    return Result(
        question.obligation.name,
        question.layout.name,
        question.cp_size,
        requests,
        found.outcome,
        found.goals,
        monotonic() - start,
        found.counterexample,
        found.open_goal,
    )


def _look(question: Question, parts: Sequence[Goals], requests: int | None, deadline: float) -> _Attempt:
    """Try goals on a batch of so many requests; on None for one request among any others, without counter-examples."""
    found = _Attempt()
    for decodes in question.mixes(requests or 1):
        unknowns = Unknowns(requests or 1, decodes)
        rules, loosens = question.rules, question.obligation.loosens
        cut = question.cut(unknowns, rules if requests else loosened(rules, loosens, unknowns.ask))
        if question.variant is not None:
            unknowns.legal += question.variant.assumes(cut)
        goals = (goal for part in parts for goal in part(cut, unknowns.ask))
        if not _try_goals(_on_terms(question.layout, goals), unknowns, deadline, found, is_any=requests is None):
            break
    return found


def _on_terms(layout: Layout, goals: Iterator[Goal]) -> Iterator[Goal]:
    """Yield goals; raises ArgumentError DSA602 where a formula of the layout does not take z3 terms."""
    while True:
        try:
            with no_truth_values():
                goal = next(goals, None)
        except (TypeError, ValueError, z3.Z3Exception) as error:
            raise ArgumentError(
                f"a formula of layout {layout.name} does not run on z3 terms, so nothing can be proven of it",
                facts=[
                    ("because", f"{type(error).__name__}: {error}"),
                    ("try", "use + - * %, and ops.divide, ops.smaller, ops.larger and ops.choose for //, min, max and if"),
                ],
            ) from error
        if goal is None:
            return
        yield goal


def _try_goals(goals: Iterator[Goal], unknowns: Unknowns, deadline: float, found: _Attempt, *, is_any: bool) -> bool:
    """Note what comes of goals; return whether to go on: not when time is up, or when a goal about any batch is refuted."""
    for goal in goals:
        if monotonic() >= deadline:
            found.open_goal = found.open_goal or goal.about
            return False
        found.goals += 1
        if not found.is_refuted:
            outcome = attempt(goal, unknowns, deadline)
            found.is_refuted = outcome is Outcome.REFUTED
            if outcome is Outcome.UNKNOWN:
                found.open_goal = found.open_goal or goal.about
        if found.is_refuted:
            if is_any:
                return False
            best = found.counterexample
            found.counterexample = smallest(goal, unknowns, deadline, best) or best
            if found.counterexample is None:
                found.open_goal = found.open_goal or goal.about
    return True
