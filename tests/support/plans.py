"""Short ways to ask for a plan in tests."""

from collections.abc import Mapping
from typing import Any

import pytest

from dsa_contracts import ContractError
from dsa_cp.planner import Plan, PlanOptions, plan_for
from dsa_cp.planner.backends import CAPABILITIES, Capability


def options(**given: Any) -> PlanOptions:
    """Return options: trtllm in both phases, fp8 rows, four ranks, unless said otherwise; `backend` sets both."""
    backend = given.pop("backend", "trtllm")
    return PlanOptions(**{"prefill_backend": backend, "decode_backend": backend, "cp_size": 4, **given})


def plan(known: Mapping[str, Capability] = CAPABILITIES, **given: Any) -> Plan:
    """Return the plan for such options."""
    return plan_for(options(**given), known)


def refusal(known: Mapping[str, Capability] = CAPABILITIES, **given: Any) -> str:
    """Return the text of the error for such options."""
    with pytest.raises(ContractError) as caught:
        plan(known, **given)
    return str(caught.value)


def with_backend(capability: Capability) -> dict[str, Capability]:
    """Return the known capabilities and one more."""
    return {**CAPABILITIES, capability.name: capability}
