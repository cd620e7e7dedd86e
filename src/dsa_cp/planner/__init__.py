"""Where K is rotated, quantised and gathered: the cheapest sequence of stages whose contracts fit, as data with reasons.

plan = make_plan("trtllm", "fp8")                     # or plan_for(PlanOptions(...))
layer = attention_layer(batch, model, plan, comm)     # once a batch; layer(inputs, kv_cache, layer_index) runs one
"""

from collections.abc import Mapping

from dsa_cp.planner.attention_layer import attention_layer, cache_formats
from dsa_cp.planner.backends import CAPABILITIES, Capability
from dsa_cp.planner.making import make
from dsa_cp.planner.options import CommKind, PlanOptions
from dsa_cp.planner.plan import PLAN_VERSION, Plan

__all__ = ["PLAN_VERSION", "CommKind", "Plan", "PlanOptions", "attention_layer", "cache_formats", "make_plan", "plan_for"]


def plan_for(options: PlanOptions, capabilities: Mapping[str, Capability] = CAPABILITIES) -> Plan:
    """Return the cheapest plan whose stages fit each other and the backends.

    Args:
        options: what the plan is for.
        capabilities: the backends that there are, by name.

    Raises:
        ArgumentError: DSA602, a backend is not known.
        PlanError: DSA401, a capability is missing; DSA304, metadata is.
    """
    return make(options, capabilities)


def make_plan(
    backend: str,
    row_format: str,
    *,
    layout: str = "interleave",
    cp_size: int = 2,
    comm: CommKind = "collective",
    placement: str | None = None,
) -> Plan:
    """Return the prefill plan of one backend for both phases, or that of a placement by name.

    Raises:
        ArgumentError: DSA602, the backend, row format or layout is not known.
        PlanError: DSA401, there is no plan; DSA402, there is no such placement, or it does not fit.
    """
    options = PlanOptions(
        prefill_backend=backend, decode_backend=backend, layout=layout, kv_format=row_format, cp_size=cp_size, comm=comm
    )
    return make(options, CAPABILITIES, placement)
