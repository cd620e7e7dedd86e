"""The slow path of development mode: everything a contract says about one call, checked with jaxtyping and beartype.

jaxtyping binds dims for one function call; here the dims that the batch has bound take part in every call, so that
`nnz_local` means the same number in each stage. beartype decides what has which type. Strides, devices, brands and
invariants, which no type says, are compared after that.
"""

from dataclasses import dataclass
from typing import TypeVar, get_args, get_origin

import jaxtyping
import torch
from torch import Tensor

from dsa_contracts.batch import CpBatch
from dsa_contracts.bearing import bears, bind_dims
from dsa_contracts.bound_dims import BoundDims
from dsa_contracts.brands import brand_of, states_rows, unify
from dsa_contracts.diagnosis import Diagnosis, brand_fault, diagnose
from dsa_contracts.dims import Dim, dim_name
from dsa_contracts.invariants import Call, Invariant
from dsa_contracts.layout import Layout
from dsa_contracts.records import ParamRecord, StageContract
from dsa_contracts.states import DType, Global, Local, Pool, RowStride
from dsa_contracts.tensors import DTYPE_NAMES, TensorSpec, dim_text, mark_text, stride_fault

CALL_DIMS = frozenset({"row_bytes", "max_position", "cos_sin_width", "num_pages", "num_slots", "max_pages", "index_topk"})
"""Dims that may differ between the calls of one batch: two pools, two row formats, two tables."""

_MARKS: dict[torch.dtype, type[DType]] = {mark.torch_dtype: mark for mark in DType.__subclasses__()}


@dataclass
class Passed:
    """What a call that passed has bound.

    Attributes:
        variables: marks that its type variables stand for, by name.
        dims: sizes by dim name, type variables included.
        bindings: (dim, size, who) for the dims that all stages of the batch share.
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
    batch: CpBatch[Layout],
    passed: Passed,
    *,
    is_output: bool,
) -> None:
    """Check parameters, or return values, of one call; what they bind is added to `passed`.

    Raises:
        StageInputError: DSA1nn. For return values StageOutputError, DSA2nn.
    """
    known = passed.dims | {name: bound.value for name, bound in batch.dims.dims.items() if name in contract.dim_names}
    context = Diagnosis(contract, batch, known, values, is_output)
    with jaxtyping.jaxtyped("context"):
        bind_dims(known)
        if is_output:
            _rebind_open_dims(contract, values)
        for param in params:
            value = values[param.name]
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


def _rebind_open_dims(contract: StageContract, values: dict[str, object]) -> None:
    """Bind `*Ds` in jaxtyping's current context as the arguments had it; only jaxtyping knows what it stands for."""
    for param in contract.params:
        if param.spec is not None and "*" in param.spec.shape_text:
            bears(values[param.name], param.hint)


def _bind_marks(context: Diagnosis, params: tuple[ParamRecord, ...], passed: Passed) -> None:
    """Bind type variables through arguments that are not tensors: the batch, a row format, a class of strides or dtype."""
    for param in params:
        value, patterns = context.values[param.name], get_args(param.hint)
        marks: tuple[object, ...] = ()
        if isinstance(value, CpBatch):
            marks = (type(value.layout),)
        elif get_origin(param.hint) is type:
            marks = (value,)
        elif hasattr(value, "type_marks"):
            marks = value.type_marks
        fits = [unify(pattern, mark, passed.variables) for pattern, mark in zip(patterns, marks, strict=False)]
        if not all(fits):
            raise context.error("type", param, f"is {type(value).__name__}[{', '.join(map(mark_text, marks))}]")


def _note_dims(context: Diagnosis, param: ParamRecord, spec: TensorSpec, tensor: Tensor, passed: Passed) -> None:
    """Note the size of each of a tensor's dims, and which of them the whole batch shares.

    A size that none of a type variable's dims has is refused here, before it is what later arguments are compared with.
    """
    for dim, size in zip(spec.dims, tensor.shape, strict=False):
        if not isinstance(dim, TypeVar | type):
            return
        name = dim_text(dim)
        passed.dims.setdefault(name, size)
        context.dims.setdefault(name, size)
        if isinstance(dim, TypeVar) and dim.__constraints__ and size not in _legal_sizes(dim, context.batch.dims):
            raise diagnose(context, param)
        if isinstance(dim, type) and name not in CALL_DIMS and all(name != known for known, _, _ in passed.bindings):
            passed.bindings += ((name, size, f"{context.contract.name}.{param.name}"),)


def _check_tensor(context: Diagnosis, param: ParamRecord, spec: TensorSpec, tensor: Tensor, passed: Passed) -> None:
    """Check what jaxtyping does not: dtype variables, strides, device, brand."""
    if isinstance(spec.dtype, TypeVar):
        mark = _MARKS.get(tensor.dtype)
        if mark is None or not unify(spec.dtype, mark, passed.variables):
            raise context.error("dtype", param, f"is {DTYPE_NAMES.get(tensor.dtype, tensor.dtype)}")
    strides = passed.variables.get(spec.strides.__name__) if isinstance(spec.strides, TypeVar) else spec.strides
    fault = stride_fault(tensor, strides, _row_bytes(strides, passed.dims))
    if fault:
        raise context.error("strides", param, f"is {fault}" if fault.startswith("not") else f"has {fault}")
    if tensor.device != context.batch.device:
        raise context.error("device", param, f"is on {tensor.device}, the batch on {context.batch.device}")
    passed.checked += len(spec.dims) + 4
    if not context.is_output:
        _check_brand(context, param, spec, tensor, passed)


def _row_bytes(strides: object, dims: dict[str, int]) -> int | None:
    """Return how many bytes apart a row stride wants rows, None for other marks."""
    if isinstance(strides, type) and issubclass(strides, RowStride):
        return dims.get(dim_name(strides.row_dim))
    return None


def _legal_sizes(variable: TypeVar, dims: BoundDims) -> set[int]:
    """Return the sizes that a variable over dims may have; one that the batch has not bound admits any size."""
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
    fault = brand_fault(brand, spec, context.batch, passed.variables)
    if fault is not None:
        raise context.brand_error(param, brand, fault)
    passed.checked += 3


def check_invariants(
    contract: StageContract,
    invariants: tuple[Invariant, ...],
    values: dict[str, object],
    batch: CpBatch[Layout],
    *,
    reads_data: bool,
    is_output: bool,
) -> int:
    """Check the invariants of one kind; returns how many.

    Raises:
        StageInputError: with the invariant's code. StageOutputError for one that holds after the call.
    """
    chosen = [invariant for invariant in invariants if invariant.reads_data == reads_data]
    call = Call(contract.name, values)
    for invariant in chosen:
        fault = invariant.check(call)
        if fault is not None:
            raise Diagnosis(contract, batch, {}, values, is_output).invariant_error(invariant, fault)
    return len(chosen)


def check_stated(contract: StageContract, values: dict[str, object], batch: CpBatch[Layout]) -> int:
    """Check that every tensor of local or global rows says which; returns how many were looked at.

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
        is_of_a_layer = param.spec.rows is Pool and batch.layer is not None
        if is_of_a_layer or isinstance(param.spec.rows, TypeVar) or get_origin(param.spec.rows) in (Local, Global):
            looked_at += 1
            if not states_rows(value):
                raise Diagnosis(contract, batch, {}, values, is_output=False).unstated_error(param)
    return looked_at
