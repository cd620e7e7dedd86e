"""What invariants of this vocabulary read of a call: its batch and its row format."""

from typing import Any

from dsa_contracts.core.errors import ContractDefinitionError
from dsa_contracts.core.invariant import Call
from dsa_contracts.dsa.batch import CpBatch
from dsa_contracts.dsa.layout import Layout
from dsa_contracts.dsa.row_formats import RowFormat


def batch_of(call: Call) -> CpBatch[Layout]:
    """Return the batch of a call; raises ContractDefinitionError DSA001 where its scope is none."""
    if not isinstance(call.scope, CpBatch):
        raise ContractDefinitionError(f"{call.stage} got no batch")
    return call.scope


def row_format_of(call: Call, name: str = "row_format") -> RowFormat[Any, Any, Any]:
    """Return the row format of a call; raises ContractDefinitionError DSA001 where the argument is none."""
    return call.value(name, RowFormat)
