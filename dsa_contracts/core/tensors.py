"""`Ten`, the typed tensor: one annotation, read by mypy as a generic type and at run time as a jaxtyping class.

`Ten[rows, state, dtype, strides, *dims]` reads: which rows in which order, in which state, exact dtype, allowed strides,
dims by name. For the type checker it is a subclass of `torch.Tensor`; at run time subscripting gives a jaxtyping
class over plain `torch.Tensor` that carries a `TensorSpec`, the record that development mode, the planner and the review
read. There is no wrapper object: a value is a plain tensor.

An annotation with type variables is also an alias that takes parameters, in the order in which its variables first appear,
as `typing` has it: `Hidden = Ten[Mine, Plain, D, Contiguous, N, HiddenSize]` makes `Hidden[BF16, N]` the same as writing the
whole with BF16 for `D`. The alias gives the annotation a name; messages and the review show what stands behind it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar, TypeVarTuple, Unpack, get_args, get_origin

import jaxtyping
import torch
from torch import Tensor

from dsa_contracts.core.errors import ContractDefinitionError
from dsa_contracts.core.marks import (
    BF16,
    E4M3,
    E5M2,
    F32,
    I8,
    I32,
    I64,
    U8,
    Contiguous,
    Dim,
    DType,
    Rows,
    State,
    UnitLast,
    dim_text,
    dtype_text,
    mark_text,
)

_JAXTYPES = {
    BF16: jaxtyping.BFloat16,
    F32: jaxtyping.Float32,
    E4M3: jaxtyping.Float8e4m3fn,
    E5M2: jaxtyping.Float8e5m2,
    U8: jaxtyping.UInt8,
    I8: jaxtyping.Int8,
    I32: jaxtyping.Int32,
    I64: jaxtyping.Int64,
}
"""The dtypes that jaxtyping has a class for. Of any other dtype it sees the dims alone, and the check compares the mark."""


@dataclass(frozen=True)
class TensorSpec:
    """What one `Ten[...]` states, as data. Marks are kept as they were written: classes, generic aliases, type variables.

    Attributes:
        rows: a rows mark or a type variable.
        state: a state mark or a type variable.
        dtype: a dtype mark or a type variable.
        strides: `Contiguous`, `UnitLast`, a `RowStride` or a type variable.
        dims: dim classes, type variables, or `Unpack[Ds]` for any trailing dims.
    """

    rows: object
    state: object
    dtype: object
    strides: object
    dims: tuple[object, ...]

    @property
    def shape_text(self) -> str:
        """Dims as jaxtyping writes them: `tokens hidden_size`, a type variable by its letter, `*Ds` for any."""
        return " ".join(dim_text(dim) for dim in self.dims)

    def describe(self) -> str:
        """Return the spec in one line: `e4m3[tokens hidden_size] Contiguous, Mine, Plain`."""
        dtype = getattr(self.dtype, "short", "") or mark_text(self.dtype)
        strides = mark_text(self.strides)
        return f"{dtype}[{self.shape_text}] {strides}, {mark_text(self.rows)}, {mark_text(self.state)}"


def _is_mark(mark: object, base: type) -> bool:
    """Whether `mark` is a type variable or a mark under `base`."""
    origin = get_origin(mark) or mark
    return isinstance(mark, TypeVar) or (isinstance(origin, type) and issubclass(origin, base))


def make_spec(params: tuple[object, ...]) -> TensorSpec:
    """Read the parameters of `Ten[...]`; raises ContractDefinitionError DSA001 where one is out of place."""
    if len(params) < 4:
        raise ContractDefinitionError(
            f"Ten takes rows, state, dtype, strides and dims, got {len(params)} parameters",
            facts=[("try", "Ten[Mine, Plain, BF16, Contiguous, Tokens, HiddenSize]")],
        )
    bases = (("rows", Rows), ("state", State), ("dtype", DType), ("strides", UnitLast))
    for mark, (place, base) in zip(params, bases, strict=False):
        if not _is_mark(mark, base):
            raise ContractDefinitionError(f"{mark_text(mark)} does not name the {place} of a tensor")
    dims = params[4:]
    for dim in dims:
        if not (isinstance(dim, TypeVar) or get_origin(dim) is Unpack or _is_mark(dim, Dim)):
            raise ContractDefinitionError(f"{mark_text(dim)} does not name a dim")
    if any(get_origin(dim) is Unpack for dim in dims[:-1]):
        raise ContractDefinitionError(f"a dim follows {dim_text(next(d for d in dims if get_origin(d) is Unpack))}")
    rows, state, dtype, strides = params[:4]
    return TensorSpec(rows, state, dtype, strides, dims)


def _variables(mark: object) -> Iterator[object]:
    """Yield the type variables in a mark, in order; one that stands in it twice comes twice."""
    if isinstance(mark, TypeVar | TypeVarTuple):
        yield mark
    for inner in get_args(mark):
        yield from _variables(inner)


def _filled(mark: object, given: dict[object, tuple[object, ...]]) -> tuple[object, ...]:
    """Return what a mark or dim is once its variables have what was given: one mark, or any number of dims for `*Ds`."""
    if isinstance(mark, TypeVar | TypeVarTuple):
        return given[mark]
    if get_origin(mark) is Unpack:
        return _filled(get_args(mark)[0], given)
    origin: Any = get_origin(mark)
    if origin is None:
        return (mark,)
    return (origin[tuple(filled for inner in get_args(mark) for filled in _filled(inner, given))],)


def fill_spec(spec: TensorSpec, params: tuple[object, ...]) -> TensorSpec:
    """Return a spec with its type variables replaced, in the order in which they first appear.

    Raises:
        ContractDefinitionError: DSA001, there are too many parameters or too few, or one is out of place.
    """
    marks = (spec.rows, spec.state, spec.dtype, spec.strides, *spec.dims)
    variables = list(dict.fromkeys(found for mark in marks for found in _variables(mark)))
    at = next((at for at, one in enumerate(variables) if isinstance(one, TypeVarTuple)), len(variables))
    is_open, spare = at < len(variables), len(params) - len(variables) + 1
    if spare < 0 or (spare != 1 and not is_open):
        names = ", ".join(f"*{mark_text(one)}" if isinstance(one, TypeVarTuple) else mark_text(one) for one in variables)
        raise ContractDefinitionError(
            f"{spec.describe()} takes the parameters [{names}], got [{', '.join(map(mark_text, params))}]"
        )
    given: dict[object, tuple[object, ...]] = dict(zip(variables[:at], [(one,) for one in params[:at]], strict=False))
    if is_open:
        given[variables[at]] = params[at : at + spare]
        given |= dict(zip(variables[at + 1 :], [(one,) for one in params[at + spare :]], strict=True))
    return make_spec(tuple(filled for mark in marks for filled in _filled(mark, given)))


@cache
def _jaxtyping_class(spec: TensorSpec) -> type:
    """Return the jaxtyping class of the spec's dtype and dims that carries the spec; one for equal specs."""
    kind = _JAXTYPES.get(spec.dtype, jaxtyping.Shaped)  # type: ignore[call-overload]
    base = kind[torch.Tensor, spec.shape_text]

    def with_parameters(_cls: type, params: object) -> type:
        return _jaxtyping_class(fill_spec(spec, params if isinstance(params, tuple) else (params,)))

    return type("Ten", (base,), {"spec": spec, "__class_getitem__": classmethod(with_parameters)})


if TYPE_CHECKING:
    RowsT_co = TypeVar("RowsT_co", covariant=True)
    StateT_co = TypeVar("StateT_co", covariant=True)
    DTypeT_co = TypeVar("DTypeT_co", covariant=True)
    StridesT_co = TypeVar("StridesT_co", covariant=True)
    DimsT = TypeVarTuple("DimsT")

    class Ten(Tensor, Generic[RowsT_co, StateT_co, DTypeT_co, StridesT_co, *DimsT]):
        """A tensor with a contract: rows, state, dtype, strides, dims."""

else:

    class Ten:
        """A tensor with a contract: rows, state, dtype, strides, dims."""

        def __class_getitem__(cls, params):
            """Return the jaxtyping class that stands for these parameters."""
            return _jaxtyping_class(make_spec(params if isinstance(params, tuple) else (params,)))


def spec_of(hint: object) -> TensorSpec | None:
    """Return the spec that a hint carries, None where the hint is no `Ten`."""
    spec = getattr(hint, "spec", None)
    return spec if isinstance(spec, TensorSpec) else None


def stride_fault(tensor: Tensor, strides: object, row_bytes: int | None) -> str | None:
    """Return what is wrong with a tensor's strides under a stride mark, None where nothing is.

    Args:
        tensor: the tensor; a dim of one element or an empty tensor has no stride that matters.
        strides: `Contiguous`, `UnitLast` or a `RowStride`.
        row_bytes: the bound value of the dim that a `RowStride` names, None for other marks.
    """
    if strides is Contiguous:
        return None if tensor.is_contiguous() else "not contiguous"
    if tensor.numel() == 0 or tensor.dim() == 0:
        return None
    if tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
        return f"last stride {tensor.stride(-1)}, not 1"
    if row_bytes is not None and tensor.shape[0] > 1:
        got = tensor.stride(0) * tensor.element_size()
        if got != row_bytes:
            return f"rows {got} bytes apart, not {row_bytes}"
    return None


def describe_tensor(tensor: object) -> str:
    """Return dtype, shape, strides and device of a tensor, or the type of anything else, in one line."""
    if not isinstance(tensor, Tensor):
        return "None" if tensor is None else f"{type(tensor).__name__} {' '.join(repr(tensor).split()):.60}"
    dtype = dtype_text(tensor.dtype)
    return f"{dtype}{list(tensor.shape)} strides {tuple(tensor.stride())} {tensor.device}"
