"""The stages as the planner finds them: the contract records, and the annotations that their sources name."""

from dataclasses import fields
from functools import cache

import dsa_contracts.stages as stubs
from dsa_contracts import CpBatch, StageContract, TensorSpec, contract_of
from dsa_contracts.core.errors import ContractDefinitionError
from dsa_contracts.core.tensors import spec_of
from dsa_contracts.dsa.codes import PlanError


@cache
def stage_contracts() -> tuple[StageContract, ...]:
    """Return the contracts of the stages that the package exports, in the order of their names."""
    return tuple(contract_of(getattr(stubs, name)) for name in sorted(stubs.__all__))


def contract_named(name: str) -> StageContract:
    """Return the contract of a stage; raises PlanError DSA402 naming the stages there are."""
    for contract in stage_contracts():
        if contract.name == name:
            return contract
    known = ", ".join(contract.name for contract in stage_contracts())
    raise PlanError(f"there is no stage {name!r}", code="DSA402", facts=[("known", known)])


@cache
def named_source(source: str) -> TensorSpec:
    """Return the spec of `batch.X`, an index tensor of `CpBatch`, or of `stage.X`, a return value.

    Raises:
        ContractDefinitionError: DSA001, there is none of that name.
    """
    owner, _, name = source.partition(".")
    if owner == "batch":
        hints = [hint for item in fields(CpBatch) if item.name == name for hint in (item.type, *_options(item.type))]
        spec = next((found for found in map(spec_of, hints) if found is not None), None)
    else:
        spec = next((record.spec for record in contract_named(owner).returns if record.name == name), None)
    if spec is None:
        raise ContractDefinitionError(f"a contract names the source {source}, which does not exist or is no tensor")
    return spec


def _options(hint: object) -> tuple[object, ...]:
    """Return the parts of a union."""
    return tuple(getattr(hint, "__args__", ()))
