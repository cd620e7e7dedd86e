"""Whether an implementation fits its contract as a function: its parameters when it is bound, its return values in a call."""

import inspect
from collections.abc import Callable

from torch import Tensor

from dsa_contracts.batch import CpBatch
from dsa_contracts.errors import ContractDefinitionError, StageOutputError
from dsa_contracts.layout import Layout
from dsa_contracts.records import StageContract
from dsa_contracts.tensors import describe_tensor


def same_parameters(contract: StageContract, function: Callable[..., object]) -> None:
    """Raise ContractDefinitionError DSA002 unless an implementation has the parameters of its contract, in order."""
    want, got = _shown_parameters(contract.stub), _shown_parameters(function)
    if want != got:
        raise ContractDefinitionError(
            f"{function.__name__} is not an implementation of {contract.name}",
            code="DSA002",
            facts=[("expected", ", ".join(want)), ("got", ", ".join(got)), ("contract", contract.location)],
        )


def _shown_parameters(function: Callable[..., object]) -> list[str]:
    """Return the parameters of a function as they are written, without their annotations."""
    return [str(param.replace(annotation=param.empty)) for param in inspect.signature(function).parameters.values()]


def refuse_other_objects(
    contract: StageContract, args: tuple[object, ...], results: tuple[object, ...], batch: CpBatch[Layout]
) -> None:
    """Raise StageOutputError where results are too few or too many (DSA201), or one is an argument itself (DSA123)."""
    if len(results) != len(contract.returns):
        raise StageOutputError(
            f"{contract.name}: returned {len(results)} values, its contract has {len(contract.returns)}",
            facts=[
                ("expected", ", ".join(record.name for record in contract.returns) or "no return value"),
                ("got", ", ".join(type(result).__name__ for result in results) or "no return value"),
                ("where", batch.where),
                ("contract", contract.location),
            ],
        )
    for name, arg in zip(contract.names, args, strict=True):
        if isinstance(arg, Tensor) and any(arg is result for result in results):
            raise StageOutputError(
                f"{contract.name}: returned its argument {name} itself",
                code="DSA123",
                facts=[
                    ("got", describe_tensor(arg)),
                    ("where", batch.where),
                    ("contract", contract.location),
                    ("try", "return a view of it: a brand is on an object"),
                ],
            )
