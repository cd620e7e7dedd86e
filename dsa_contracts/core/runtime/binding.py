"""Whether an implementation fits its contract as a function: its parameters when it is bound, its return values in a call."""

import inspect
from collections.abc import Callable

from torch import Tensor

from dsa_contracts.core.contract import StageContract, shown_place
from dsa_contracts.core.errors import TRIES, ContractDefinitionError, StageOutputError
from dsa_contracts.core.scope import Scope
from dsa_contracts.core.tensors import describe_tensor


def same_parameters(contract: StageContract, function: Callable[..., object]) -> None:
    """Raise ContractDefinitionError DSA002 unless an implementation has the parameters of its contract, in order."""
    want, got = _shown_parameters(contract.stub), _shown_parameters(function)
    if want != got:
        raise ContractDefinitionError(
            f"{function.__name__} is not an implementation of {contract.name}",
            code="DSA002",
            facts=[
                ("expected", ", ".join(want)),
                ("got", ", ".join(got)),
                ("contract", contract.location),
                ("ran", place_of(function)),
                ("try", TRIES["DSA002"]),
            ],
        )


def _shown_parameters(function: Callable[..., object]) -> list[str]:
    """Return parameters as they are written, without annotations; `*` stands before the keyword-only ones."""
    shown: list[str] = []
    for param in inspect.signature(function).parameters.values():
        if param.kind is param.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        shown.append(str(param.replace(annotation=param.empty)))
    return shown


def by_position(function: Callable[..., object]) -> Callable[..., object]:
    """Return a function that takes all arguments by position; the same one unless some are keyword-only."""
    params = inspect.signature(function).parameters.values()
    named = [param.name for param in params if param.kind is param.KEYWORD_ONLY]
    if not named:
        return function
    first = len(params) - len(named)

    def call(*args: object) -> object:
        return function(*args[:first], **dict(zip(named, args[first:], strict=True)))

    return call


def place_of(function: Callable[..., object]) -> str:
    """Return name, file and line of an implementation; what is not written in Python has a name only."""
    name, code = getattr(function, "__qualname__", str(function)), getattr(function, "__code__", None)
    return name if code is None else f"{name}, {shown_place(code)}"


def refuse_other_number(contract: StageContract, results: tuple[object, ...], scope: Scope, implementation: str) -> None:
    """Raise StageOutputError DSA201 where results are too few or too many."""
    if len(results) == len(contract.returns):
        return
    raise StageOutputError(
        f"{contract.name}: returned {len(results)} values, its contract has {len(contract.returns)}",
        facts=[
            ("expected", ", ".join(record.name for record in contract.returns) or "no return value"),
            ("got", ", ".join(type(result).__name__ for result in results) or "no return value"),
            ("where", scope.where),
            ("contract", contract.location),
            ("ran", implementation),
            ("try", TRIES["DSA201"]),
        ],
    )


def refuse_arguments(
    contract: StageContract, args: tuple[object, ...], results: tuple[object, ...], scope: Scope, implementation: str
) -> None:
    """Raise StageOutputError DSA123 where a result is an argument itself."""
    for name, arg in zip(contract.names, args, strict=True):
        if isinstance(arg, Tensor) and any(arg is result for result in results):
            raise StageOutputError(
                f"{contract.name}: returned its argument {name} itself",
                code="DSA123",
                facts=[
                    ("got", describe_tensor(arg)),
                    ("where", scope.where),
                    ("contract", contract.location),
                    ("ran", implementation),
                    ("try", TRIES["DSA123"]),
                ],
            )
