"""The code that runs is proven; what is given in a proof can be; what runs out of time is unknown and not proven."""

from time import monotonic

import pytest

from dsa_contracts.dsa.layout import Layout
from dsa_cp.layouts import Interleave, VllmReplicated, VllmZigzag, Zigzag
from dsa_cp.tools.prove.balance import CHUNKS_ARE_MIRRORED
from dsa_cp.tools.prove.goals import Goal, Obligation
from dsa_cp.tools.prove.obligations import OBLIGATIONS, RESTORE_IS_BIJECTION
from dsa_cp.tools.prove.proof_results import Outcome
from dsa_cp.tools.prove.prover import ProofQuestion, answer, questions
from dsa_cp.tools.prove.right import RIGHT
from dsa_cp.tools.prove.solver import Unknowns, z3
from dsa_cp.tools.prove.stage_fit import STAGES_FIT

LAYOUTS: list[Layout] = [Zigzag(), Interleave(), Interleave(16), Interleave(64), VllmZigzag(), VllmReplicated()]
REQUESTS = (1, 2, 3)


def ids(value: object) -> str:
    return value.name if isinstance(value, Layout | Obligation) else str(value)


@pytest.mark.parametrize("layout", LAYOUTS, ids=ids)
@pytest.mark.parametrize("cp_size", [2, 3, 4, 8, 16])
def test_every_obligation_is_proven_for_all_lengths(layout: Layout, cp_size: int) -> None:
    for question in questions([layout], [cp_size]):
        for result in answer(question, REQUESTS, 60.0):
            assert (result.obligation, result.outcome) == (question.obligation.name, Outcome.PROVEN)
            assert result.goals > 0


def test_facts_about_one_request_are_proven_for_any_number_of_requests() -> None:
    found = {
        question.obligation.name: [result.requests for result in answer(question, REQUESTS, 60.0)]
        for question in questions([Interleave()], [2])
    }
    assert found == {
        "rows_have_one_writer": [None],
        "restore_is_bijection": [1, 2, 3],
        "pad_target_is_least": [None],
        "rank_lens_count_rows": [1, 2, 3],
        "positions_match_rows": [1, 2, 3],
        "slots_written_once": [None],
        "local_lens_add_up": [None],
        "stages_fit": [None],
    }


def goals_of(obligation: Obligation, layout: Layout, unknowns: Unknowns) -> list[Goal]:
    cut = ProofQuestion(obligation, layout, 2).cut(unknowns, RIGHT)
    return [goal for part in (*obligation.of_request, *obligation.of_batch) for goal in part(cut, unknowns.ask)]


@pytest.mark.parametrize("obligation", [*OBLIGATIONS, CHUNKS_ARE_MIRRORED, STAGES_FIT], ids=ids)
@pytest.mark.parametrize("layout", [Zigzag(), Interleave(3), VllmZigzag(), VllmReplicated()], ids=ids)
def test_what_a_goal_takes_for_given_is_true_of_some_batch(layout: Layout, obligation: Obligation) -> None:
    unknowns = Unknowns(2)
    for goal in goals_of(obligation, layout, unknowns) if obligation.applies(layout) else []:
        solver = z3.Solver()
        solver.add(*unknowns.legal, *goal.given)
        # A replicated request has no tail chunk, and rank 0 writes all that it holds: nothing is asked of them.
        is_empty = "not written" in goal.about and ("tail" in goal.about or "rank 0" in goal.about)
        assert solver.check() == (z3.unsat if is_empty else z3.sat), goal.about


def test_without_time_a_proof_is_unknown() -> None:
    (first, *_) = answer(ProofQuestion(RESTORE_IS_BIJECTION, Zigzag(), 2), REQUESTS, 1e-9)
    assert (first.outcome, first.goals, first.open_goal) == (Outcome.UNKNOWN, 0, "rank 0, head chunk of request 0")


def test_where_there_is_nothing_to_prove_nothing_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsa_cp.tools.prove.stage_fit.legal_paths", lambda layout: ())
    assert {result.outcome for result in answer(ProofQuestion(STAGES_FIT, Zigzag(), 2), REQUESTS, 60.0)} == {Outcome.UNKNOWN}


def test_time_that_runs_out_in_the_middle_leaves_the_rest_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, *(0.1 * tick for tick in range(10_000))])
    monkeypatch.setattr("dsa_cp.tools.prove.prover.monotonic", lambda: next(clock))
    monkeypatch.setattr("dsa_cp.tools.prove.solver.monotonic", lambda: monotonic() - monotonic())
    (first, *_) = answer(ProofQuestion(RESTORE_IS_BIJECTION, Zigzag(), 2), (1,), 0.55)
    assert first.outcome is Outcome.UNKNOWN
    assert 0 < first.goals < 15
