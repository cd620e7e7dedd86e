"""The slow path of development mode: everything a contract says about one call, checked with jaxtyping and beartype.

jaxtyping binds dims for one function call; here the dims that the scope has bound take part in every call, so that
a dim means the same number in each stage. beartype decides what has which type. Strides, devices, brands and
invariants, which no type says, are compared after that.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar, get_origin

import jaxtyping
from torch import Tensor

from dsa_contracts.core.bound_dims import BoundDims
from dsa_contracts.core.brands import brand_of, states_rows
from dsa_contracts.core.contract import ParamRecord, StageContract
from dsa_contracts.core.errors import NotShownError
from dsa_contracts.core.invariant import Call, Invariant
from dsa_contracts.core.marks import U8, Dim, RowStride, UnitLast, dim_name, dim_text, dtype_text, mark_text
from dsa_contracts.core.matching import dtype_clash, dtype_mark, unify_parameters
from dsa_contracts.core.parts import ABSENT, Marked, Parts
from dsa_contracts.core.runtime.bearing import bears, bind_dims
from dsa_contracts.core.runtime.messages import Diagnosis, brand_fault, diagnose
from dsa_contracts.core.scope import Scope
from dsa_contracts.core.tensors import TensorSpec, stride_fault


@dataclass
class Passed:
    """What a call that passed has bound.

    Attributes:
        variables: marks that its type variables stand for, by name.
        dims: sizes by dim name, type variables included.
        bindings: (dim, size, who) for the dims that all stages of the scope share.
        checked: facts that were compared.
        unknown: tensors that carried no brand.
    """

    variables: dict[str, object]
    dims: dict[str, int]
    bindings: tuple[tuple[str, int, str], ...] = ()
    checked: int = 0
    unknown: int = 0


def check_params(
    contract: StageContract,
    params: tuple[ParamRecord, ...],
    values: dict[str, object],
    scope: Scope,
    passed: Passed,
    *,
    is_output: bool,
) -> None:
    """Check parameters, or return values, of one call; what they bind is added to `passed`.

    Raises:
        StageInputError: DSA1nn. For return values StageOutputError, DSA2nn.
    """
    known = passed.dims | {name: bound.value for name, bound in scope.dims.dims.items() if name in contract.dim_names}
    context = Diagnosis(contract, scope, known, values, is_output)
    with jaxtyping.jaxtyped("context"):
        bind_dims(known)
        if is_output:
            _rebind_open_dims(contract, values)
        for param in params:
            value = values[param.name]
            if value is ABSENT:
                continue
            if isinstance(value, Parts) and param.spec is not None:
                _note_parts(context, param, param.spec, value, passed)
                continue
            if not bears(value, param.hint):
                raise diagnose(context, param)
            if param.spec is not None and isinstance(value, Tensor):
                _note_dims(context, param, param.spec, value, passed)
            passed.checked += 1
    if not is_output:
        _bind_marks(context, params, passed)
    for param in params:
        value = values[param.name]
        if param.spec is not None and isinstance(value, Tensor):
            _check_tensor(context, param, param.spec, value, passed)
        elif param.spec is not None and isinstance(value, Parts):
            _check_parts(context, param, param.spec, value, passed)


def _rebind_open_dims(contract: StageContract, values: dict[str, object]) -> None:
    """Bind `*Ds` in jaxtyping's current context as the arguments had it; only jaxtyping knows what it stands for."""
    for param in contract.params:
        if param.spec is not None and "*" in param.spec.shape_text and values[param.name] is not ABSENT:
            bears(values[param.name], param.hint)


def _bind_marks(context: Diagnosis, params: tuple[ParamRecord, ...], passed: Passed) -> None:
    """Bind type variables through arguments that are not tensors: the scope, a row format, a class of strides or dtype."""
    for param in params:
        value = context.values[param.name]
        marks: tuple[object, ...] = ()
        if get_origin(param.hint) is type:
            marks = (value,)
        elif isinstance(value, Scope | Marked):
            marks = value.type_marks
        if not unify_parameters(param.needed_hint, marks, passed.variables):
            raise context.error("type", param, f"is {type(value).__name__}[{', '.join(map(mark_text, marks))}]")


def _note_dims(context: Diagnosis, param: ParamRecord, spec: TensorSpec, tensor: Tensor, passed: Passed) -> None:
    """Note the size of each of a tensor's dims, and which of them the whole scope shares.

    A size that none of a type variable's dims has is refused here, before it is what later arguments are compared with.
    """
    _note_sizes(context, param, zip(spec.dims, tensor.shape, strict=False), passed)


def _note_sizes(context: Diagnosis, param: ParamRecord, sizes: Iterable[tuple[object, int]], passed: Passed) -> None:
    """Note sizes by dim."""
    for dim, size in sizes:
        if not isinstance(dim, TypeVar | type):
            return
        name = dim_text(dim)
        passed.dims.setdefault(name, size)
        context.dims.setdefault(name, size)
        if isinstance(dim, TypeVar) and dim.__constraints__ and size not in _legal_sizes(dim, context.scope.dims):
            raise diagnose(context, param)
        if (
            isinstance(dim, type)
            and not getattr(dim, "varies", False)
            and all(name != known for known, _, _ in passed.bindings)
        ):
            passed.bindings += ((name, size, f"{context.contract.name}.{param.name}"),)


def _check_tensor(context: Diagnosis, param: ParamRecord, spec: TensorSpec, tensor: Tensor, passed: Passed) -> None:
    """Check what jaxtyping does not: dtype variables, strides, device, brand."""
    mark = dtype_mark(spec.dtype, tensor.dtype, passed.variables)
    if mark is None:
        raise context.error("dtype", param, f"is {dtype_text(tensor.dtype)}")
    clash = dtype_clash(spec.dtype, mark, passed.variables)
    if clash is not None:
        raise context.error("dtype", param, clash.text)
    strides = passed.variables.get(spec.strides.__name__) if isinstance(spec.strides, TypeVar) else spec.strides
    fault = stride_fault(tensor, strides, _row_bytes(strides, passed.dims))
    if fault:
        raise context.error("strides", param, f"is {fault}" if fault.startswith("not") else f"has {fault}")
    expected = context.scope.device
    if expected is not None and tensor.device != expected:
        raise context.error("device", param, f"is on {tensor.device}, the {context.scope.noun} on {expected}")
    passed.checked += len(spec.dims) + 4
    if not context.is_output:
        _check_brand(context, param, spec, tensor, passed)


def _note_parts(context: Diagnosis, param: ParamRecord, spec: TensorSpec, parts: Parts, passed: Passed) -> None:
    """Compare and note the sizes of rows that are held part by part: their number, and the bytes of all parts of a row."""
    if spec.dtype is not U8 or not parts.tensors or not all(isinstance(part, Tensor) for part in parts.tensors):
        raise context.error("type", param, "is Parts, which stand for packed rows alone")
    if any(part.dim() < 2 for part in parts.tensors):
        raise context.error("ndim", param, "has a part with fewer than 2 dims")
    counts = [part.shape[0] for part in parts.tensors]
    if len(set(counts)) > 1:
        raise context.error("dim", param, f"has parts of {' and '.join(map(str, counts))} rows")
    for dim, size in zip((spec.dims[0], spec.dims[-1]), (parts.rows, parts.row_bytes), strict=True):
        known = context.dims.get(dim_text(dim))
        if known is not None and known != size:
            raise context.error("dim", param, f"has {size} {'rows' if dim is spec.dims[0] else 'bytes a row'}, not {known}")
        _note_sizes(context, param, [(dim, size)], passed)
        bind_dims({dim_text(dim): size})


def _check_parts(context: Diagnosis, param: ParamRecord, spec: TensorSpec, parts: Parts, passed: Passed) -> None:
    """Check strides, device and brand of each part."""
    states = parts.states(spec.state)
    for at, part in enumerate(parts.tensors):
        fault = stride_fault(part, UnitLast, None)
        if fault:
            raise context.error("strides", param, f"has {fault} in part {at}")
        expected = context.scope.device
        if expected is not None and part.device != expected:
            raise context.error("device", param, f"has part {at} on {part.device}, the {context.scope.noun} on {expected}")
        passed.checked += len(spec.dims) + 4
        if not context.is_output:
            own = TensorSpec(spec.rows, states[at], spec.dtype, UnitLast, spec.dims)
            _check_brand(context, param, own, part, passed)


def _row_bytes(strides: object, dims: dict[str, int]) -> int | None:
    """Return how many bytes apart a row stride wants rows, None for other marks."""
    if isinstance(strides, type) and issubclass(strides, RowStride):
        return dims.get(dim_name(strides.row_dim))
    return None


def _legal_sizes(variable: TypeVar, dims: BoundDims) -> set[int]:
    """Return the sizes that a variable over dims may have; one that the scope has not bound admits any size."""
    names = [dim_name(dim) for dim in variable.__constraints__ if isinstance(dim, type) and issubclass(dim, Dim)]
    sizes = {dims.value(name) for name in names}
    return _AnySize() if None in sizes else {size for size in sizes if size is not None}


class _AnySize(set[int]):
    """A set that holds every size."""

    def __contains__(self, size: object) -> bool:
        return True


def _check_brand(context: Diagnosis, param: ParamRecord, spec: TensorSpec, tensor: Tensor, passed: Passed) -> None:
    """Compare a tensor's brand with its contract; a tensor whose rows no brand states is counted as unknown."""
    if not states_rows(tensor):
        passed.unknown += 1
    brand = brand_of(tensor)
    if brand is None:
        return
    fault = brand_fault(brand, spec, context.scope, passed.variables)
    if fault is not None:
        raise context.brand_error(param, brand, fault)
    sources = context.contract.sources_of(param.name)
    if sources and not brand.kind.is_declared and brand.kind.producer not in sources:
        raise context.source_error(param, brand, sources)
    passed.checked += 3


def check_invariants(
    contract: StageContract,
    invariants: tuple[Invariant, ...],
    values: dict[str, object],
    scope: Scope,
    *,
    reads_data: bool,
    is_output: bool,
) -> int:
    """Check the invariants of one kind; returns how many.

    Raises:
        StageInputError: with the invariant's code. StageOutputError for one that holds after the call.
    """
    chosen = [invariant for invariant in invariants if invariant.reads_data == reads_data]
    call = Call(contract.name, values, scope, reads_data)
    for invariant in chosen:
        try:
            fault = invariant.check(call)
        except NotShownError:
            continue
        if fault is not None:
            raise Diagnosis(contract, scope, {}, values, is_output).invariant_error(invariant, fault)
    return len(chosen)


def check_stated(contract: StageContract, values: dict[str, object], scope: Scope) -> int:
    """Check that every tensor says which rows it holds where its mark asks for that; returns how many were looked at.

    A tensor without a brand is legal where an invariant reads its values. Elsewhere only a brand can tell the right order
    from a wrong one of the same shape, so that values mode asks for it.

    Raises:
        StageInputError: DSA125.
    """
    read = {invariant.subject for invariant in contract.requires if invariant.shows_rows}
    looked_at = 0
    for param in contract.params:
        value = values[param.name]
        if param.spec is None or not isinstance(value, Tensor) or param.name in read:
            continue
        if _must_be_stated(param.spec.rows, scope):
            looked_at += 1
            if not states_rows(value):
                raise Diagnosis(contract, scope, {}, values, is_output=False).unstated_error(param)
    return looked_at


def _must_be_stated(rows: object, scope: Scope) -> bool:
    """Whether rows that a contract states must be known of a tensor; a variable stands for rows of any kind."""
    if isinstance(rows, TypeVar):
        return True
    stated = getattr(get_origin(rows) or rows, "stated", "never")
    return stated == "always" or (stated == "in a layer" and scope.layer is not None)
