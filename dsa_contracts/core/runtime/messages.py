"""What to say about a violated contract: which argument, what was expected, what came, why, where, what to do."""

from dataclasses import dataclass
from typing import TypeVar, get_origin

from torch import Tensor

from dsa_contracts.core.brands import Brand, brand_of
from dsa_contracts.core.contract import ParamRecord, StageContract
from dsa_contracts.core.errors import TRIES, ContractError, StageInputError, StageOutputError
from dsa_contracts.core.invariant import Invariant
from dsa_contracts.core.marks import Plain, dim_name, dim_text, dtype_text, mark_text
from dsa_contracts.core.matching import Bound, dtype_mark_text, rows_clash, state_clash
from dsa_contracts.core.parts import Parts
from dsa_contracts.core.scope import Scope
from dsa_contracts.core.tensors import TensorSpec, describe_tensor

_KINDS = {"type": 1, "dim": 2, "dtype": 3, "strides": 4, "device": 5, "ndim": 9}


@dataclass
class Diagnosis:
    """The context of one violated call.

    Attributes:
        contract: the stage's contract.
        scope: the scope of the call.
        dims: sizes bound so far, by dim name.
        values: arguments or return values by name.
        is_output: whether a return value is at fault.
    """

    contract: StageContract
    scope: Scope
    dims: dict[str, int]
    values: dict[str, object]
    is_output: bool

    def error(self, kind: str, param: ParamRecord, what: str, because: str = "") -> ContractError:
        """Return the error for one kind of fault of one parameter; `what` follows its name in the headline."""
        code = f"DSA{2 if self.is_output else 1}{_KINDS[kind]:02}"
        return self._error(code, f"{param.name} {what}", param, because)

    def brand_error(self, param: ParamRecord, brand: Brand, fault: tuple[str, str]) -> ContractError:
        """Return the error for a brand that does not fit."""
        code, what = fault
        because = f"its brand: {brand.describe()}"
        known = param.spec is not None and code == "DSA107" and self._advice_on_numbers(param.name, param.spec.state)
        return self._error(code, f"{param.name} {what}", param, because, ahead=known or "")

    def _advice_on_numbers(self, name: str, state: object) -> str:
        """Return what to do about numbers that count or index something else; an empty text where a state is no such mark."""
        if not (isinstance(state, type) and issubclass(state, Plain) and state is not Plain):
            return ""
        own = f"a tensor of your own is declared as {mark_text(state)} where it enters the path, with dsa_contracts.declare"
        sources = " or ".join(self.contract.sources_of(name))
        return f"pass {sources}; {own}" if sources else own

    def source_error(self, param: ParamRecord, brand: Brand, sources: tuple[str, ...]) -> ContractError:
        """Return the error for a tensor of the right rows and state that another stage made, or that has another name."""
        wanted = " or ".join(sources)
        headline = f"{param.name} comes from {brand.kind.producer}, not from {wanted}"
        advice = f"pass {wanted}; where something else makes the same, say so with dsa_contracts.declare"
        return self._error("DSA106", headline, param, f"its brand: {brand.describe()}", ahead=advice)

    def unstated_error(self, param: ParamRecord) -> ContractError:
        """Return the error for a tensor whose rows and order nothing states."""
        because = "it has no brand: a view or an operation dropped it, or no stage made it"
        rows = None if param.spec is None else param.spec.rows
        advice = getattr(get_origin(rows) or rows, "how_stated", "")
        return self._error("DSA125", f"nothing states which rows {param.name} holds", param, because, advice)

    def invariant_error(self, invariant: Invariant, fault: str) -> ContractError:
        """Return the error for an invariant that does not hold."""
        kind = StageOutputError if self.is_output else StageInputError
        facts = [
            ("expected", f"{invariant.name}: {invariant.statement}"),
            ("where", self.scope.where),
            ("contract", self.contract.location),
            ("try", self._advice(invariant.code)),
        ]
        return kind(f"{self.contract.name}: {fault}", code=invariant.code, facts=facts)

    def _error(
        self, code: str, headline: str, param: ParamRecord, because: str, better: str = "", *, ahead: str = ""
    ) -> ContractError:
        """Return the error; its advice is `ahead`, which goes before what the contract says of the code, or as `_advice`."""
        kind = StageOutputError if self.is_output else StageInputError
        facts = [
            ("expected", self._expected(param)),
            ("got", _described(self.values.get(param.name))),
            ("because", because),
            ("where", self.scope.where),
            ("contract", self.contract.location),
            ("try", ahead or self._advice(code, better)),
        ]
        return kind(f"{self.contract.name}: {headline}", code=code, facts=facts)

    def _advice(self, code: str, better: str = "") -> str:
        """Return what to do about a code: what the contract says, else what is known of the fault, else of the code."""
        return self.contract.advice_for(code) or better or TRIES[code]

    def _expected(self, param: ParamRecord) -> str:
        """Return what the contract says of a parameter, with the dims that are bound and who bound them."""
        if param.spec is None:
            return mark_text(param.hint)
        bound = []
        for dim in param.spec.dims:
            for name in _names(dim):
                known = self.scope.dims.dims.get(name)
                if known is not None:
                    bound.append(f"{name}={known.value}, bound by {known.by}")
        return "; ".join([param.spec.describe(), *bound])


def _names(dim: object) -> list[str]:
    """Return the dims that a dim of a spec may be."""
    if isinstance(dim, TypeVar):
        return [dim_name(option) for option in dim.__constraints__]
    return [dim_name(dim)] if isinstance(dim, type) else []


def _described(value: object) -> str:
    """Return a value in one line; rows that are held part by part, part by part."""
    return " and ".join(map(describe_tensor, value.tensors)) if isinstance(value, Parts) else describe_tensor(value)


def diagnose(context: Diagnosis, param: ParamRecord) -> ContractError:
    """Return the error for a value that jaxtyping and beartype refused: type, dtype, number of dims, or a dim."""
    value, spec = context.values.get(param.name), param.spec
    if isinstance(value, Parts) and spec is not None:
        fault = _dim_fault(context, param, 0, spec.dims[0], value.tensors[0])
        return fault or context.error("dim", param, "has parts that an earlier argument contradicts")
    if spec is None or not isinstance(value, Tensor):
        got = "None" if value is None else type(value).__name__
        return context.error("type", param, f"is {got}")
    if getattr(spec.dtype, "torch_dtype", value.dtype) != value.dtype:
        return context.error("dtype", param, f"is {dtype_text(value.dtype)}, not {dtype_mark_text(spec.dtype)}")
    is_open = bool(spec.dims) and not isinstance(spec.dims[-1], TypeVar | type)
    fixed = spec.dims[:-1] if is_open else spec.dims
    if value.dim() < len(fixed) or (value.dim() > len(fixed) and not is_open):
        return context.error("ndim", param, f"has {value.dim()} dims, not {len(fixed)}")
    for index, dim in enumerate(fixed):
        fault = _dim_fault(context, param, index, dim, value)
        if fault is not None:
            return fault
    return context.error("dim", param, f"has shape {list(value.shape)}, which an earlier argument contradicts")


def _dim_fault(context: Diagnosis, param: ParamRecord, index: int, dim: object, value: Tensor) -> ContractError | None:
    """Return the error for one dim of a tensor, None where its size fits."""
    size, name = value.shape[index], dim_text(dim)
    unit = "rows" if index == 0 else name
    why = _why(context, value, size) if index == 0 else ""
    known = context.dims.get(name)
    other = _who_else(context, param, name)
    if isinstance(dim, TypeVar):
        legal = [f"{option} {context.scope.dims.value(option)}" for option in _names(dim)]
        sizes = [context.scope.dims.value(option) for option in _names(dim)]
        if None not in sizes and size not in sizes:
            text = f"has {size} rows, which is neither {' nor '.join(legal)}"
            return context.error("dim", param, text, why)
    if known is None or known == size:
        return None
    bound = context.scope.dims.dims.get(name)
    what = f"has {size} {unit}, {other} has {known}" if other else f"has {size} {unit}, {name} is {known}"
    if bound is not None and not other:
        what += f", bound by {bound.by}"
    return context.error("dim", param, what, why)


def _who_else(context: Diagnosis, param: ParamRecord, name: str) -> str:
    """Return the first argument, or earlier return value, that has the dim; an empty text where there is none."""
    for other in (*context.contract.params, *context.contract.returns):
        if other is param:
            return ""
        if other.spec is not None and name in [dim_text(dim) for dim in other.spec.dims]:
            return other.name
    return ""


def _why(context: Diagnosis, value: Tensor, size: int) -> str:
    """Return which rows a tensor of that size holds: what its brand says, or what the scope knows of that size."""
    brand = brand_of(value)
    if brand is not None:
        return f"its brand: {brand.describe()}"
    return context.scope.meaning_of(size)


def brand_fault(brand: Brand, spec: TensorSpec, scope: Scope, variables: Bound) -> tuple[str, str] | None:
    """Return the code of what in a brand does not fit a spec, and the words for it; None where all fits."""
    own = scope.variant_of(brand.kind.rows)
    if brand.kind.variant and brand.kind.variant != own:
        return "DSA106", f"is laid out as {brand.kind.variant}, the {scope.noun} as {own}"
    if brand.scope_token is not None and brand.scope_token is not scope.token:
        return "DSA108", f"was made for another {scope.noun}"
    if brand.layer is not None and scope.layer is not None and brand.layer != scope.layer:
        return "DSA108", f"was made for layer {brand.layer}, this is layer {scope.layer}"
    clash = rows_clash(spec.rows, brand.kind.rows, variables) or state_clash(spec.state, brand.kind.state, variables)
    return None if clash is None else (clash.code, clash.text)
