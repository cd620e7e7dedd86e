"""Whether the state of a tensor fits what a contract states: decided here for run-time checks, planner, proofs and review.

A pattern is what stands in a stub: marks, with type variables where any of several will do. A value is what a tensor has:
concrete marks. A variable takes the first value that it meets and keeps it for the call, so that two arguments in `R` hold
the same rows. A mark fits a pattern that it is derived from; None stands for a value that nobody knows and fits everything.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args, get_origin

import torch

from dsa_contracts.core.marks import DType, dim_text, dtype_marks, mark_text
from dsa_contracts.core.tensors import TensorSpec

Bound = dict[str, object]
"""What type variables stand for, by name."""

Kind = Literal["rows", "state", "dtype", "strides", "dims"]

_CODES: dict[Kind, str] = {"rows": "DSA106", "state": "DSA107", "dtype": "DSA103", "strides": "DSA104", "dims": "DSA102"}


@dataclass(frozen=True)
class Clash:
    """One fact of a tensor that a contract does not allow: which kind of fact, and the fact in words behind its name."""

    kind: Kind
    text: str

    @property
    def code(self) -> str:
        """The code of that kind of fault."""
        return _CODES[self.kind]


def unify(pattern: object, value: object, bound: Bound) -> bool:
    """Whether a mark fits a pattern; type variables of the pattern are bound by name on the way."""
    if value is None:
        return True
    if isinstance(pattern, TypeVar):
        return is_within(value, pattern) and bound.setdefault(pattern.__name__, value) == value
    origin = get_origin(pattern)
    if origin is None:
        return pattern is value or (isinstance(pattern, type) and isinstance(value, type) and issubclass(value, pattern))
    if get_origin(value) is not origin:
        return False
    pairs = zip(get_args(pattern), get_args(value), strict=True)
    return all(unify(inner, got, bound) for inner, got in pairs)


def unify_parameters(hint: object, marks: tuple[object, ...], bound: Bound) -> bool:
    """Whether the type parameters of a hint, as in `RowFormat[F, ND, RD]`, fit the marks that a value has for them."""
    return all(unify(pattern, mark, bound) for pattern, mark in zip(get_args(hint), marks, strict=False))


def substitute(pattern: object, bound: Bound) -> object:
    """Return the concrete mark that a pattern stands for, None where one of its type variables is not bound."""
    if isinstance(pattern, TypeVar):
        return bound.get(pattern.__name__)
    origin = get_origin(pattern)
    if origin is None:
        return pattern
    inner = tuple(substitute(arg, bound) for arg in get_args(pattern))
    return None if None in inner else origin[inner]


def shown(pattern: object, bound: Bound) -> str:
    """Return a pattern as written, each of its variables replaced where it is bound."""
    if isinstance(pattern, TypeVar):
        return mark_text(bound.get(pattern.__name__, pattern))
    origin = get_origin(pattern)
    if origin is None:
        return mark_text(pattern)
    return f"{origin.__name__}[{', '.join(shown(arg, bound) for arg in get_args(pattern))}]"


def is_within(mark: object, variable: TypeVar) -> bool:
    """Whether a mark is under the bound of a type variable, or one of those that it is confined to."""
    if variable.__constraints__:
        return mark in variable.__constraints__
    limit, kind = bound_of(variable), get_origin(mark) or mark
    return not isinstance(kind, type) or issubclass(kind, limit)


def bound_of(variable: TypeVar) -> type:
    """Return the class that bounds a type variable; a name in quotes is looked up where the variable was made."""
    limit = variable.__bound__
    if limit is not None and not isinstance(limit, type):
        module = sys.modules.get(variable.__module__)
        limit = getattr(module, getattr(limit, "__forward_arg__", ""), None)
    return limit if isinstance(limit, type) else object


def rows_clash(pattern: object, value: object, bound: Bound) -> Clash | None:
    """Return what keeps rows from fitting a pattern, None where they fit."""
    if unify(pattern, value, bound):
        return None
    return Clash("rows", f"holds {mark_text(value)} rows, not {shown(pattern, bound)}")


def state_clash(pattern: object, value: object, bound: Bound) -> Clash | None:
    """Return what keeps a state from fitting a pattern, None where it fits."""
    return None if unify(pattern, value, bound) else Clash("state", f"is {mark_text(value)}, not {shown(pattern, bound)}")


def dtype_clash(pattern: object, value: object, bound: Bound) -> Clash | None:
    """Return what keeps a dtype mark from fitting a pattern, None where it fits."""
    if unify(pattern, value, bound):
        return None
    return Clash("dtype", f"is {dtype_mark_text(value)}, not {dtype_mark_text(pattern, bound)}")


def dtype_mark(pattern: object, dtype: torch.dtype, bound: Bound) -> type[DType] | None:
    """Return the mark of a tensor's dtype: the one that the pattern names, where several stand for one dtype.

    Packed fp4 values in uint8 and plain bytes are of one dtype, and a vocabulary may have a mark for each.
    """
    if isinstance(pattern, TypeVar):
        named: tuple[object, ...] = (bound.get(pattern.__name__), *pattern.__constraints__)
    else:
        named = (pattern,)
    known = (mark for mark in named if isinstance(mark, type) and issubclass(mark, DType))
    fits = (mark for mark in known if getattr(mark, "torch_dtype", None) == dtype)
    return next(fits, dtype_marks().get(dtype))


def dtype_mark_text(mark: object, bound: Bound | None = None) -> str:
    """Return how a dtype mark is written in messages: `bf16`; a variable by what it is bound to, else by its letter."""
    known = mark if bound is None else substitute(mark, bound) or mark
    return getattr(known, "short", "") or mark_text(known)


def clash_of(pattern: TensorSpec, value: TensorSpec, bound: Bound) -> Clash | None:
    """Return what keeps a tensor of one spec from fitting another; None where it fits, and then variables are bound."""
    for clash in (
        rows_clash(pattern.rows, value.rows, bound),
        state_clash(pattern.state, value.state, bound),
        dtype_clash(pattern.dtype, value.dtype, bound),
    ):
        if clash is not None:
            return clash
    if not unify(pattern.strides, value.strides, bound):
        return Clash("strides", f"has strides {mark_text(value.strides)}, not {shown(pattern.strides, bound)}")
    if not unify_dims(pattern.dims, value.dims, bound):
        return Clash("dims", f"is [{value.shape_text}], not [{pattern.shape_text}]")
    return None


def distance(pattern: TensorSpec, value: TensorSpec, bound: Bound) -> int:
    """Return in how many of its places a tensor does not fit a pattern; dims count most."""
    trial = dict(bound)
    pairs = (
        (pattern.rows, value.rows),
        (pattern.state, value.state),
        (pattern.dtype, value.dtype),
        (pattern.strides, value.strides),
    )
    places = [unify(stated, got, trial) for stated, got in pairs]
    return places.count(False) + len(places) * (not unify_dims(pattern.dims, value.dims, trial))


def unify_dims(pattern: tuple[object, ...], value: tuple[object, ...], bound: Bound) -> bool:
    """Whether dims by name fit one by one; `*Ds` takes the rest."""
    for at, dim in enumerate(pattern):
        if not isinstance(dim, TypeVar | type):
            rest = value[at:]
            return bound.setdefault(dim_text(dim), rest) == rest
        if at >= len(value):
            return False
        if isinstance(dim, TypeVar):
            legal = not dim.__constraints__ or value[at] in dim.__constraints__
            if not legal or bound.setdefault(dim.__name__, value[at]) != value[at]:
                return False
        elif dim is not value[at]:
            return False
    return len(pattern) == len(value)


def concrete(pattern: TensorSpec, bound: Bound) -> TensorSpec:
    """Return a spec with its variables replaced; one that is not bound stays as it is written."""

    def put(mark: object) -> object:
        known = substitute(mark, bound)
        return mark if known is None else known

    dims = tuple(dim for pattern_dim in pattern.dims for dim in _put_dim(pattern_dim, bound))
    return TensorSpec(put(pattern.rows), put(pattern.state), put(pattern.dtype), put(pattern.strides), dims)


def _put_dim(dim: object, bound: Bound) -> Iterator[object]:
    """Yield what a dim of a pattern stands for: one dim, or those of `*Ds`."""
    if isinstance(dim, TypeVar):
        yield bound.get(dim.__name__, dim)
    elif isinstance(dim, type):
        yield dim
    else:
        found = bound.get(dim_text(dim))
        yield from found if isinstance(found, tuple) else (dim,)
