"""The contracts: to the experts, through them, back, and together."""

from dsa_contracts.core.comm import Exchange
from dsa_contracts.core.contract import contract
from dsa_contracts.core.invariant import Call, Invariant
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


def counts_are_of_this_step() -> Invariant:
    """Counts were made by this rank, from the routing of this step."""

    def check(call: Call) -> str | None:
        counts, step = call.value("counts", Counts), call.value("step", Step)
        if (counts.rank, counts.step) == (step.rank, step.number):
            return None
        return f"counts are of rank {counts.rank}, step {counts.step}; this is rank {step.rank}, step {step.number}"

    return Invariant("counts_are_of_this_step", "MOE101", "counts", "counts are of this rank and step", False, check)


def experts_are_here() -> Invariant:
    """Every row that arrived is for an expert of this rank."""

    def check(call: Call) -> str | None:
        experts, step = call.tensor("expert_of_row"), call.value("step", Step)
        here = range(step.first_expert, step.first_expert + step.num_experts // step.size)
        wrong = next((int(expert) for expert in experts if int(expert) not in here), None)
        return None if wrong is None else f"a row is for expert {wrong}; here are {here.start} to {here.stop - 1}"

    statement = "rows are for experts of this rank"
    return Invariant("experts_are_here", "MOE102", "expert_of_row", statement, True, check)


@contract(returns=("rows", "expert_of_row"), requires=(counts_are_of_this_step(),), ensures=(experts_are_here(),))
def dispatch(x: Tokens, experts: Experts, counts: Counts, step: Step, comm: Exchange) -> tuple[AtExperts, ExpertOfRow]:
    """Each choice of a token stands at the rank of its expert.

    Sync: two collectives.
    """
    raise NotImplementedError


@contract(returns=("computed",), requires=(experts_are_here(),))
def run_experts(rows: AtExperts, expert_of_row: ExpertOfRow, matrices: ExpertMatrices, step: Step) -> Computed:
    """Each row has gone through its expert; no weight has been applied."""
    raise NotImplementedError


@contract(returns=("returned",), requires=(counts_are_of_this_step(),))
def send_back(computed: Computed, counts: Counts, step: Step, comm: Exchange) -> Returned:
    """Each rank has the results of its own choices, in the order in which it sent them.

    Sync: one collective.
    """
    raise NotImplementedError


@contract(returns=("weighted",))
def weigh(returned: Returned, experts: Experts, weights: Weights, step: Step) -> ReturnedWeighted:
    """Each result is multiplied by the weight of its choice, for kernels that sum alone."""
    raise NotImplementedError


@contract(returns=("out",), advice=(("DSA106", "send_back first"), ("DSA107", "weights are applied here alone")))
def combine(returned: Returned, experts: Experts, weights: Weights, step: Step) -> Out:
    """Each token is the weighed sum of what its experts returned."""
    raise NotImplementedError
