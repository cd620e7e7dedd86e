"""The record of a stage: its contract as data, read off the stub. There is no second description of a stage."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import CodeType, NoneType
from typing import TypeVar, get_args, get_origin, get_type_hints

from torch import Tensor

from dsa_contracts.core.comm import Group
from dsa_contracts.core.errors import ContractDefinitionError
from dsa_contracts.core.invariant import Invariant
from dsa_contracts.core.marks import dim_text, mark_text
from dsa_contracts.core.scope import Scope
from dsa_contracts.core.tensors import TensorSpec, spec_of

Stub = TypeVar("Stub", bound=Callable[..., object])

_ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class ParamRecord:
    """One parameter or return value.

    Attributes:
        name: its name; return values are named by the contract.
        hint: the annotation, resolved.
        spec: what a `Ten` states, None for anything else.
        is_optional: whether None is legal.
    """

    name: str
    hint: object
    spec: TensorSpec | None
    is_optional: bool

    @property
    def needed_hint(self) -> object:
        """The annotation of a value that is there: `Box[B]` of `Box[B] | None`."""
        options = [option for option in get_args(self.hint) if option is not NoneType]
        return options[0] if self.is_optional and len(options) == 1 else self.hint

    @property
    def kind(self) -> object:
        """The class of the annotation, without its type parameters."""
        return get_origin(self.hint) or self.hint

    @property
    def kind_text(self) -> str:
        """The name of that class."""
        return mark_text(self.kind)


@dataclass(frozen=True)
class StageContract:
    """A stage's contract.

    Attributes:
        name: the stage.
        stub: the function that was written as the contract.
        params: parameters in order.
        returns: return values in order; empty for a stage that works in place.
        requires: invariants that hold before the call.
        ensures: invariants that hold after it.
        advice: what to do about a code, where this stage knows better than the code's own text.
        flow: which argument's rows end up in which result: a return value, or an argument that is written in place.
        sources: where an argument may come from that no stage's rows flow into, as `scope.numbers` or
            `number.numbers`; which of them fits, the annotations say. What another stage returned, or another tensor of
            the scope, is refused; what a caller declared is not.
    """

    name: str
    stub: Callable[..., object] = field(repr=False)
    params: tuple[ParamRecord, ...]
    returns: tuple[ParamRecord, ...]
    requires: tuple[Invariant, ...] = ()
    ensures: tuple[Invariant, ...] = ()
    advice: tuple[tuple[str, str], ...] = ()
    flow: tuple[tuple[str, str], ...] = ()
    sources: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @cached_property
    def location(self) -> str:
        """File and line of the stub, relative to the folder that holds the package."""
        return shown_place(self.stub.__code__)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters in order."""
        return tuple(param.name for param in self.params)

    @cached_property
    def dim_names(self) -> frozenset[str]:
        """Written names of all dims of the parameters and return values, type variables included."""
        specs = [record.spec for record in (*self.params, *self.returns) if record.spec is not None]
        return frozenset(dim_text(dim) for spec in specs for dim in spec.dims)

    @cached_property
    def comm_param(self) -> str | None:
        """Name of the parameter that is the group of a collective stage, None for a stage without a collective."""
        return next((param.name for param in self.params if _is_a(param.kind, Group)), None)

    @cached_property
    def scope_param(self) -> str | None:
        """Name of the parameter that is the scope, None where calls take the one that they run in."""
        return next((param.name for param in self.params if _is_a(param.kind, Scope)), None)

    def param(self, name: str) -> ParamRecord:
        """Return a parameter by name."""
        return next(param for param in self.params if param.name == name)

    def result(self, name: str) -> ParamRecord:
        """Return a return value by name, or the argument of that name that the stage writes in place."""
        return next(record for record in (*self.returns, *self.params) if record.name == name)

    def sources_of(self, name: str) -> tuple[str, ...]:
        """Return where an argument may come from, nothing where it may come from anywhere."""
        return dict(self.sources).get(name, ())

    def advice_for(self, code: str) -> str:
        """Return what this stage's contract advises for a code, an empty text where it says nothing."""
        return dict(self.advice).get(code, "")


def shown_place(code: CodeType) -> str:
    """Return file and line of a function, relative to the folder that holds this package where it stands in that."""
    path = Path(code.co_filename).resolve()
    shown = path.relative_to(_ROOT) if path.is_relative_to(_ROOT) else path
    return f"{shown.as_posix()}:{code.co_firstlineno}"


def _is_a(kind: object, base: type) -> bool:
    """Whether a class is derived from another; of protocols only those that say so."""
    return isinstance(kind, type) and base in kind.__mro__


_CONTRACTS: dict[Callable[..., object], StageContract] = {}


def contract(
    *,
    returns: tuple[str, ...] = (),
    requires: tuple[Invariant, ...] = (),
    ensures: tuple[Invariant, ...] = (),
    advice: tuple[tuple[str, str], ...] = (),
    flow: tuple[tuple[str, str], ...] = (),
    sources: tuple[tuple[str, tuple[str, ...]], ...] = (),
) -> Callable[[Stub], Stub]:
    """Make a function stub the contract of the stage of its name. The stub itself is returned.

    Args:
        returns: a name for each return value.
        requires: invariants before the call, beyond what the annotations say.
        ensures: invariants after the call.
        advice: pairs of a code and what to do about it.
        flow: pairs of an argument and the result that its rows end up in, see `StageContract`.
        sources: pairs of an argument and where it may come from, see `StageContract`.

    Raises:
        ContractDefinitionError: DSA001, an annotation is missing, does not resolve or is `Tensor`, a parameter is not an
            ordinary or keyword-only one, there are two scopes, the return values and their names differ in number, or
            `flow` or `sources` names what the stub does not have.
    """

    def record(stub: Stub) -> Stub:
        hints = resolve_hints(stub)
        params = tuple(_param(param, hints, stub) for param in inspect.signature(stub).parameters.values())
        scopes = [param.name for param in params if _is_a(param.kind, Scope)]
        if len(scopes) > 1:
            raise ContractDefinitionError(f"{stub.__name__} has several scopes: {', '.join(scopes)}; dims are bound for one")
        outputs = _outputs(stub, hints.get("return", NoneType), returns)
        made = StageContract(stub.__name__, stub, params, outputs, requires, ensures, advice, flow, sources)
        _check_names(made)
        _CONTRACTS[stub] = made
        return stub

    return record


def _check_names(made: StageContract) -> None:
    """Raise ContractDefinitionError DSA001 where `flow` or `sources` names no parameter or return value of the stub."""
    results = {record.name for record in made.returns}
    named = {argument for argument, _ in (*made.flow, *made.sources)} | {result for _, result in made.flow} - results
    for name in sorted(named - set(made.names)):
        raise ContractDefinitionError(f"{made.name} has no parameter and no return value {name}")


def contract_of(stub: Callable[..., object]) -> StageContract:
    """Return the contract of a stub, or of an implementation in any mode; raises ContractDefinitionError DSA001."""
    found = _CONTRACTS.get(stub) or _IMPLEMENTED.get(stub)
    if found is None:
        raise ContractDefinitionError(f"{getattr(stub, '__name__', stub)!s} is not decorated with @contract or @stage")
    return found


def all_contracts() -> tuple[StageContract, ...]:
    """Return every contract defined so far, in the order of their definition."""
    return tuple(_CONTRACTS.values())


_IMPLEMENTED: dict[Callable[..., object], StageContract] = {}


def register_implementation(function: Callable[..., object], record: StageContract) -> None:
    """Remember which contract an implementation is bound to, so that production mode needs no attribute on it."""
    _IMPLEMENTED[function] = record


def resolve_hints(function: Callable[..., object]) -> dict[str, object]:
    """Return all hints of a function; raises ContractDefinitionError DSA001 where one does not resolve."""
    try:
        return get_type_hints(function)
    except Exception as error:
        raise ContractDefinitionError(
            f"an annotation of {function.__name__} does not resolve: {error}",
            facts=[("try", "import the name at run time, and not under TYPE_CHECKING alone")],
        ) from error


def _param(param: inspect.Parameter, hints: dict[str, object], stub: Callable[..., object]) -> ParamRecord:
    """Return the record of one parameter."""
    if param.kind not in (param.POSITIONAL_OR_KEYWORD, param.KEYWORD_ONLY):
        raise ContractDefinitionError(
            f"{stub.__name__}: {param.name} is {param.kind.description}, not an ordinary or keyword-only one"
        )
    if param.name not in hints:
        raise ContractDefinitionError(f"{stub.__name__}: {param.name} has no annotation")
    if hints[param.name] is Tensor:
        raise ContractDefinitionError(f"{stub.__name__}: {param.name} is any Tensor", facts=[("try", "say which, with Ten")])
    return make_param(param.name, hints[param.name])


def make_param(name: str, hint: object) -> ParamRecord:
    """Return the record of a name with a hint: a `Ten`, a `Ten | None`, or any other type."""
    options = [arg for arg in get_args(hint) if arg is not NoneType] if NoneType in get_args(hint) else [hint]
    spec = spec_of(options[0]) if len(options) == 1 else None
    return ParamRecord(name, hint, spec, is_optional=options != [hint])


def _outputs(stub: Callable[..., object], hint: object, names: tuple[str, ...]) -> tuple[ParamRecord, ...]:
    """Return the records of the return values."""
    hints = get_args(hint) if get_origin(hint) is tuple else () if hint is NoneType else (hint,)
    if len(hints) != len(names):
        raise ContractDefinitionError(f"{stub.__name__} returns {len(hints)} values, and {len(names)} are named")
    return tuple(make_param(name, part) for name, part in zip(names, hints, strict=True))
