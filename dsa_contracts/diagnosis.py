"""What to say about a violated contract: which argument, what was expected, what came, why, where, what to do."""

import re
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor

from dsa_contracts.batch import CpBatch
from dsa_contracts.brands import Brand, brand_of, unify
from dsa_contracts.dims import dim_name
from dsa_contracts.errors import ContractError, StageInputError, StageOutputError
from dsa_contracts.invariants import Invariant
from dsa_contracts.layout import Layout
from dsa_contracts.records import ParamRecord, StageContract
from dsa_contracts.states import Pool
from dsa_contracts.tensors import DTYPE_NAMES, TensorSpec, describe_tensor, dim_text, mark_text

_KINDS = {"type": 1, "dim": 2, "dtype": 3, "strides": 4, "device": 5, "ndim": 9}

_ADVICE = {
    "strides": "pass a tensor with those strides, or .contiguous() where a copy is meant",
    "dtype": "view bytes with .view(dtype); a .to(dtype) changes the values",
    "device": "move the tensor to the batch's device before the stage",
}

_ROW_MEANING = {
    "nnz": "the rows of all ranks",
    "nnz_local": "this rank's rows without padding",
    "nnz_padded": "this rank's rows with padding",
    "nnz_gathered": "the gathered rows of all ranks, padding included",
}


@dataclass
class Diagnosis:
    """The context of one violated call.

    Attributes:
        contract: the stage's contract.
        batch: the batch of the call.
        dims: sizes bound so far, by dim name.
        values: arguments or return values by name.
        is_output: whether a return value is at fault.
    """

    contract: StageContract
    batch: CpBatch[Layout]
    dims: dict[str, int]
    values: dict[str, object]
    is_output: bool

    def error(self, kind: str, param: ParamRecord, what: str, because: str = "") -> ContractError:
        """Return the error for one kind of fault of one parameter; `what` follows its name in the headline."""
        code = f"DSA{2 if self.is_output else 1}{_KINDS[kind]:02}"
        return self._error(code, f"{param.name} {what}", param, because, _ADVICE.get(kind, ""))

    def brand_error(self, param: ParamRecord, brand: Brand, fault: tuple[str, str]) -> ContractError:
        """Return the error for a brand that does not fit."""
        code, what = fault
        return self._error(code, f"{param.name} {what}", param, f"its brand: {brand.describe()}", "")

    def unstated_error(self, param: ParamRecord) -> ContractError:
        """Return the error for a tensor whose rows and order nothing states."""
        because = "it has no brand: a view or an operation dropped it, or no stage made it"
        advice = "pass what a stage returned, or state it with dsa_contracts.declare where it enters the path"
        if param.spec is not None and param.spec.rows is Pool:
            advice = "indexing a cache drops the brand: state each layer's pool with dsa_contracts.declare_lasting"
        return self._error("DSA125", f"nothing states which rows {param.name} holds", param, because, advice)

    def invariant_error(self, invariant: Invariant, fault: str) -> ContractError:
        """Return the error for an invariant that does not hold."""
        kind = StageOutputError if self.is_output else StageInputError
        facts = [
            ("expected", f"{invariant.name}: {invariant.statement}"),
            ("where", self.batch.where),
            ("contract", self.contract.location),
            ("try", self.contract.advice_for(invariant.code)),
        ]
        return kind(f"{self.contract.name}: {fault}", code=invariant.code, facts=facts)

    def _error(self, code: str, headline: str, param: ParamRecord, because: str, advice: str) -> ContractError:
        kind = StageOutputError if self.is_output else StageInputError
        facts = [
            ("expected", self._expected(param)),
            ("got", describe_tensor(self.values.get(param.name))),
            ("because", because),
            ("where", self.batch.where),
            ("contract", self.contract.location),
            ("try", self.contract.advice_for(code) or advice),
        ]
        return kind(f"{self.contract.name}: {headline}", code=code, facts=facts)

    def _expected(self, param: ParamRecord) -> str:
        """Return what the contract says of a parameter, with the dims that are bound and who bound them."""
        if param.spec is None:
            return mark_text(param.hint)
        bound = []
        for dim in param.spec.dims:
            for name in _names(dim):
                known = self.batch.dims.dims.get(name)
                if known is not None:
                    bound.append(f"{name}={known.value}, bound by {known.by}")
        return "; ".join([param.spec.describe(), *bound])


def _names(dim: object) -> list[str]:
    """Return the dims that a dim of a spec may be."""
    if isinstance(dim, TypeVar):
        return [dim_name(option) for option in dim.__constraints__]
    return [dim_name(dim)] if isinstance(dim, type) else []


def diagnose(context: Diagnosis, param: ParamRecord) -> ContractError:
    """Return the error for a value that jaxtyping and beartype refused: type, dtype, number of dims, or a dim."""
    value, spec = context.values.get(param.name), param.spec
    if spec is None or not isinstance(value, Tensor):
        got = "None" if value is None else type(value).__name__
        return context.error("type", param, f"is {got}")
    want = getattr(spec.dtype, "torch_dtype", value.dtype)
    if value.dtype != want:
        return context.error("dtype", param, f"is {DTYPE_NAMES.get(value.dtype, value.dtype)}, not {DTYPE_NAMES[want]}")
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
        legal = [f"{option} {context.batch.dims.value(option)}" for option in _names(dim)]
        sizes = [context.batch.dims.value(option) for option in _names(dim)]
        if None not in sizes and size not in sizes:
            text = f"has {size} rows, which is neither {' nor '.join(legal)}"
            return context.error("dim", param, text, why)
    if known is None or known == size:
        return None
    bound = context.batch.dims.dims.get(name)
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
    """Return which rows a tensor of that size holds: what its brand says, or the row count of the batch that it equals."""
    brand = brand_of(value)
    if brand is not None:
        return f"its brand: {brand.describe()}"
    counts = context.batch.row_counts
    meant = [f"{size} is {name}, {text}" for name, text in _ROW_MEANING.items() if counts[name] == size]
    return meant[0] if meant else ""


def brand_fault(
    brand: Brand, spec: TensorSpec, batch: CpBatch[Layout], variables: dict[str, object]
) -> tuple[str, str] | None:
    """Return the code of what in a brand does not fit a spec, and the words for it; None where all fits."""
    if brand.kind.layout and brand.kind.layout != batch.layout.name:
        return "DSA106", f"is laid out as {brand.kind.layout}, the batch as {batch.layout.name}"
    if brand.batch_token is not None and brand.batch_token is not batch.token:
        return "DSA108", "was made for another batch"
    if brand.layer is not None and batch.layer is not None and brand.layer != batch.layer:
        return "DSA108", f"was made for layer {brand.layer}, this is layer {batch.layer}"
    if not unify(spec.rows, brand.kind.rows, variables):
        return "DSA106", f"holds {mark_text(brand.kind.rows)} rows, not {_meant(spec.rows, variables)}"
    if not unify(spec.state, brand.kind.state, variables):
        return "DSA107", f"is {mark_text(brand.kind.state)}, not {_meant(spec.state, variables)}"
    return None


def _meant(pattern: object, variables: dict[str, object]) -> str:
    """Return a pattern as written, with the marks that its variables are bound to in this call."""
    text = mark_text(pattern)
    if isinstance(pattern, TypeVar):
        return mark_text(variables.get(pattern.__name__, pattern))
    for name, mark in variables.items():
        text = re.sub(rf"\b{name}\b", mark_text(mark), text)
    return text
