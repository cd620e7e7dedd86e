"""Refused by mypy, and by development mode where types are not read."""

from examples.expert_dispatch.dispatch import combine, weigh
from examples.expert_dispatch.routing import Computed, Experts, Out, Returned, Step, Weights


def weighs_twice(returned: Returned, experts: Experts, weights: Weights, step: Step) -> Out:
    """A kernel that weighs its results comes in front of a combine that does so too."""
    return combine(weigh(returned, experts, weights, step), experts, weights, step)  # refused


def combines_in_expert_order(computed: Computed, experts: Experts, weights: Weights, step: Step) -> Out:
    """Results are summed where they were computed, and not sent back."""
    return combine(computed, experts, weights, step)  # refused
