"""The implementation, in torch."""

import torch
from torch import Tensor

from dsa_contracts.core.brands import brand
from dsa_contracts.core.comm import Exchange
from dsa_contracts.core.runtime.stage import stage
from examples.expert_dispatch import dispatch_contracts
from examples.expert_dispatch.routing import (
    AtExperts,
    Computed,
    Counts,
    ExpertMatrices,
    ExpertOfRow,
    Experts,
    Out,
    Returned,
    ReturnedWeighted,
    Step,
    Tokens,
    Weights,
)


def send_order(experts: Tensor) -> Tensor:
    """Return, for each place in send order, which choice stands there: token * top_k + which of its experts."""
    return experts.flatten().argsort(stable=True)


def count(experts: Experts, step: Step, comm: Exchange) -> Counts:
    """Return the counts of this step's exchanges.

    Sync: one collective, and the host waits for the device.
    """
    owner = experts.flatten() // (step.num_experts // step.size)
    send = torch.bincount(owner, minlength=step.size)
    table = comm.all_gather(send.view(1, -1).view(torch.uint8)).view(torch.int64)
    return Counts(tuple(send.tolist()), tuple(table[:, step.rank].tolist()), step.rank, step.number)


@stage(dispatch_contracts.dispatch)
def dispatch(x: Tokens, experts: Experts, counts: Counts, step: Step, comm: Exchange) -> tuple[AtExperts, ExpertOfRow]:
    """Send a copy of a token for each of its choices, and which expert it is for."""
    order = send_order(experts)
    rows = x[order // experts.shape[1]]
    taken = comm.all_to_all(rows.view(torch.uint8), counts.send, counts.take).view(torch.float32)
    chosen = experts.flatten()[order].view(-1, 1)
    expert_of_row = comm.all_to_all(chosen.view(torch.uint8), counts.send, counts.take).view(torch.int64)
    return brand(taken), brand(expert_of_row.view(-1))


@stage(dispatch_contracts.run_experts)
def run_experts(rows: AtExperts, expert_of_row: ExpertOfRow, matrices: ExpertMatrices, step: Step) -> Computed:
    """Multiply each row by the matrix of its expert."""
    own = matrices[expert_of_row - step.first_expert]
    return brand(torch.einsum("noi,ni->no", own, rows))


@stage(dispatch_contracts.send_back)
def send_back(computed: Computed, counts: Counts, step: Step, comm: Exchange) -> Returned:
    """Send each rank what it sent, in the same order."""
    return brand(comm.all_to_all(computed.view(torch.uint8), counts.take, counts.send).view(torch.float32))


@stage(dispatch_contracts.weigh)
def weigh(returned: Returned, experts: Experts, weights: Weights, step: Step) -> ReturnedWeighted:
    """Multiply each result by its weight."""
    return brand(returned * weights.flatten()[send_order(experts)].view(-1, 1))


@stage(dispatch_contracts.combine)
def combine(returned: Returned, experts: Experts, weights: Weights, step: Step) -> Out:
    """Add each result, weighed, to its token."""
    order = send_order(experts)
    out = returned.new_zeros(experts.shape[0], returned.shape[1])
    weighed = returned * weights.flatten()[order].view(-1, 1)
    return brand(out.index_add(0, order // experts.shape[1], weighed))


def layer(x: Tokens, experts: Experts, weights: Weights, matrices: ExpertMatrices, step: Step, comm: Exchange) -> Out:
    """The whole layer: four collectives, the counts' included."""
    counts = count(experts, step, comm)
    rows, expert_of_row = dispatch(x, experts, counts, step, comm)
    computed = run_experts(rows, expert_of_row, matrices, step)
    return combine(send_back(computed, counts, step, comm), experts, weights, step)
