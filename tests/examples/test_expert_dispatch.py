"""Expert dispatch: equal to all experts on one rank, and refused in the wrong order, weighed twice, or with other counts."""

from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts.core.brands import brand
from dsa_contracts.core.comm import Exchange
from dsa_contracts.core.declarations import declare
from dsa_contracts.core.errors import RankError
from dsa_contracts.core.marks import Plain
from dsa_contracts.core.modes import Mode, checking_values
from dsa_contracts.core.runtime.stage import stage
from dsa_cp.comm import run_ranks
from examples.expert_dispatch import dispatch_contracts
from examples.expert_dispatch.counts_of_another_step import counts_of_another_step
from examples.expert_dispatch.dispatch import combine, count, dispatch, layer, run_experts, send_back
from examples.expert_dispatch.routing import (
    AtExperts,
    Counts,
    ExpertOfRow,
    Experts,
    OwnExperts,
    RouterWeights,
    Step,
    TokenOrder,
    Tokens,
)
from tests.examples.ranks import normal, refusal

REFUSED: Any = import_module("examples.expert_dispatch.refused.weighs_twice")
EXPERTS, WIDTH, WIDTH_OUT = 4, 3, 2
MATRICES = normal(EXPERTS, WIDTH_OUT, WIDTH, seed=9)


def tokens_of(rank: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens of a rank, two different experts of each, and their weights."""
    draws = normal(count, EXPERTS, seed=20 + rank)
    weights, experts = draws.softmax(-1).topk(2)
    return normal(count, WIDTH, seed=rank), experts, weights


def declared(step: Step, rows: int) -> tuple[Any, Any, Any, Any]:
    """The arguments of a rank's layer, as a model would hand them on."""
    x, experts, weights = tokens_of(step.rank, rows)
    own = EXPERTS // step.size
    matrices = MATRICES[step.first_expert : step.first_expert + own].clone()
    for tensor, rows_mark, state in (
        (x, TokenOrder, Plain),
        (experts, TokenOrder, Plain),
        (weights, TokenOrder, RouterWeights),
        (matrices, OwnExperts, Plain),
    ):
        declare(tensor, rows_mark, state, step, "test")
    return x, experts, weights, matrices


def reference(rank: int, rows: int) -> Tensor:
    """All experts on one rank, in float64, token by token."""
    x, experts, weights = tokens_of(rank, rows)
    out = torch.zeros(rows, WIDTH_OUT, dtype=torch.float64)
    for token in range(rows):
        for expert, weight in zip(experts[token].tolist(), weights[token].tolist(), strict=True):
            out[token] += weight * (MATRICES[expert].double() @ x[token].double())
    return out


@pytest.mark.parametrize("lens", [[5], [3, 4], [0, 6], [2, 0, 1, 5], [0, 0]])
def test_tokens_come_back_as_from_all_experts_on_one_rank(lens: list[int]) -> None:
    def rank(comm: Exchange) -> Tensor:
        step = Step(0, EXPERTS, comm.size, comm.rank)
        with checking_values():
            return layer(*declared(step, lens[comm.rank]), step, comm)

    for number, out in enumerate(run_ranks(len(lens), rank)):
        torch.testing.assert_close(out.double(), reference(number, lens[number]), atol=1e-6, rtol=1e-5)


def on_one_rank(body: Any) -> str:
    """The refusal of a body on the only rank of a group, where all orders have one length."""

    def rank(comm: Exchange) -> None:
        step = Step(0, EXPERTS, 1, 0)
        x, experts, weights, matrices = declared(step, 3)
        counts = count(experts, step, comm)
        rows, expert_of_row = dispatch(x, experts, counts, step, comm)
        computed = run_experts(rows, expert_of_row, matrices, step)
        combine(send_back(computed, counts, step, comm), experts, weights, step)
        body(computed, send_back(computed, counts, step, comm), experts, weights, step)

    return refusal(run_ranks, 1, rank)


def test_a_combine_in_the_order_of_experts_is_refused() -> None:
    text = on_one_rank(lambda computed, returned, *rest: REFUSED.combines_in_expert_order(computed, *rest))
    bound = "choices=6, bound by send_back.returned; model_width_out=2, bound by run_experts.matrices"
    assert text.splitlines() == [
        "StageInputError DSA106: combine: returned holds ExpertOrder rows, not SendOrder",
        f"  expected  f32[choices model_width_out] Contiguous, SendOrder, Unweighted; {bound}",
        "  got       f32[6, 2] strides (2, 1) cpu",
        "  because   its brand: ExpertOrder, Unweighted, from run_experts.computed",
        "  where     rank 0 of 1, step 0",
        "  contract  examples/expert_dispatch/dispatch_contracts.py",
        "  try       send_back first",
    ]


def test_weights_that_are_applied_twice_are_refused() -> None:
    text = on_one_rank(lambda computed, returned, *rest: REFUSED.weighs_twice(returned, *rest))
    assert text.splitlines()[0] == "StageInputError DSA107: combine: returned is Weighted, not Unweighted"
    assert text.splitlines()[-1] == "  try       weights are applied here alone"


def test_counts_of_another_step_are_refused() -> None:
    def rank(comm: Exchange) -> None:
        before, step = Step(0, EXPERTS, 2, comm.rank), Step(1, EXPERTS, 2, comm.rank)
        x, experts, _, _ = declared(step, 3)
        counts_of_another_step(x, experts, declared(before, 3)[1], before, step, comm)

    assert refusal(run_ranks, 2, rank).splitlines() == [
        "StageInputError MOE101: dispatch: counts are of rank 0, step 0; this is rank 0, step 1",
        "  expected  counts_are_of_this_step: counts are of this rank and step",
        "  where     rank 0 of 2, step 1",
        "  contract  examples/expert_dispatch/dispatch_contracts.py",
    ]


def test_counts_of_another_rank_are_refused() -> None:
    def rank(comm: Exchange) -> None:
        step = Step(0, EXPERTS, 2, comm.rank)
        x, experts, _, _ = declared(step, 3)
        dispatch(x, experts, replace(count(experts, step, comm), rank=1 - comm.rank), step, comm)

    assert refusal(run_ranks, 2, rank).splitlines()[0] == (
        "StageInputError MOE101: dispatch: counts are of rank 1, step 0; this is rank 0, step 0"
    )


def test_counts_that_no_contract_can_tell_are_refused_by_the_group() -> None:
    """Right rank, right step, and yet what one rank sends is not what the other takes."""

    def rank(comm: Exchange) -> None:
        step = Step(0, EXPERTS, 2, comm.rank)
        x, experts, _, _ = declared(step, 3)
        counts = count(experts, step, comm)
        if comm.rank == 1:
            counts = replace(counts, take=tuple(reversed(counts.take)))
        dispatch(x, experts, counts, step, comm)

    with pytest.raises(RankError, match=r"DSA501: ranks 0, 1 of 2 came to collective 3 with counts that do not fit"):
        run_ranks(2, rank)


@stage(dispatch_contracts.dispatch, mode=Mode.VALUES)
def dispatch_unsorted(
    x: Tokens, experts: Experts, counts: Counts, step: Step, comm: Exchange
) -> tuple[AtExperts, ExpertOfRow]:
    """Send choices in the order of tokens, with right counts."""
    rows = x.repeat_interleave(2, 0)
    taken = comm.all_to_all(rows.view(torch.uint8), counts.send, counts.take).view(torch.float32)
    expert_of_row = comm.all_to_all(experts.view(-1, 1).view(torch.uint8), counts.send, counts.take).view(torch.int64)
    return brand(taken), brand(expert_of_row.view(-1))


def test_an_implementation_that_sends_rows_to_the_wrong_ranks_is_refused_in_values_mode() -> None:
    def rank(comm: Exchange) -> None:
        step = Step(0, EXPERTS, 2, comm.rank)
        x, _, _, _ = declared(step, 2)
        experts: Any = declare(torch.tensor([[3, 0], [1, 2]]), TokenOrder, Plain, step, "test")
        dispatch_unsorted(x, experts, count(experts, step, comm), step, comm)

    assert refusal(run_ranks, 2, rank).splitlines()[0] == (
        "StageOutputError MOE102: dispatch: a row is for expert 3; here are 0 to 1"
    )
