"""Whether one tensor's spec fits what a contract asks for, and what a stage makes of it: annotations alone, no tensor.

The marks are compared by the functions that development mode uses (`brands.unify`, `brands.substitute`); added here is what
a tensor shows by itself at run time: dtype, strides and dims.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ForwardRef, TypeVar, get_args, get_origin

from dsa_contracts import TensorSpec, states
from dsa_contracts.brands import substitute, unify
from dsa_contracts.tensors import dim_text, mark_text

Bound = dict[str, object]
"""What type variables stand for, by name."""


@dataclass(frozen=True)
class Clash:
    """One fact of a tensor that a contract does not allow: the code of that kind of fault, and the fact in words."""

    code: str
    what: str


def clash_of(pattern: TensorSpec, value: TensorSpec, bound: Bound) -> Clash | None:
    """Return what keeps a tensor from fitting a contract's pattern, None where it fits; variables are bound on the way."""
    if not _fits_mark(pattern.rows, value.rows, bound):
        return Clash("DSA106", f"holds {mark_text(value.rows)} rows, not {shown(pattern.rows, bound)}")
    if not _fits_mark(pattern.state, value.state, bound):
        return Clash("DSA107", f"is {mark_text(value.state)}, not {shown(pattern.state, bound)}")
    if not _fits_mark(pattern.dtype, value.dtype, bound):
        return Clash("DSA103", f"is {mark_text(value.dtype)}, not {shown(pattern.dtype, bound)}")
    if not _fits_strides(pattern.strides, value.strides, bound):
        return Clash("DSA104", f"has strides {mark_text(value.strides)}, not {shown(pattern.strides, bound)}")
    if not _fits_dims(pattern.dims, value.dims, bound):
        return Clash("DSA102", f"is [{value.shape_text}], not [{pattern.shape_text}]")
    return None


def distance(pattern: TensorSpec, value: TensorSpec, bound: Bound) -> int:
    """Return in how many of its places a tensor does not fit a pattern; dims count most."""
    trial = dict(bound)
    places = (
        _fits_mark(pattern.rows, value.rows, trial),
        _fits_mark(pattern.state, value.state, trial),
        _fits_mark(pattern.dtype, value.dtype, trial),
        _fits_strides(pattern.strides, value.strides, trial),
    )
    return places.count(False) + len(places) * (not _fits_dims(pattern.dims, value.dims, trial))


def shown(pattern: object, bound: Bound) -> str:
    """Return a pattern as written, its variables replaced where they are bound."""
    known = substitute(pattern, bound)
    return mark_text(pattern if known is None else known)


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


def _fits_mark(pattern: object, value: object, bound: Bound) -> bool:
    """Whether a mark fits a pattern, the bound of a bare type variable included."""
    if isinstance(pattern, TypeVar) and not _is_within(value, pattern):
        return False
    return unify(pattern, value, bound)


def _is_within(mark: object, variable: TypeVar) -> bool:
    """Whether a mark is under the bound of a type variable; `typevars` names bounds as text, to import no marks."""
    limit = variable.__bound__
    if isinstance(limit, ForwardRef):
        limit = getattr(states, limit.__forward_arg__.rpartition(".")[2], object)
    kind = get_origin(mark) or mark
    return not (isinstance(limit, type) and isinstance(kind, type)) or issubclass(kind, limit)


def _fits_strides(pattern: object, value: object, bound: Bound) -> bool:
    """Whether strides of one kind are strides of another: dense rows are also rows with a unit last stride."""
    if isinstance(pattern, TypeVar):
        return _fits_mark(pattern, value, bound)
    return isinstance(pattern, type) and isinstance(value, type) and issubclass(value, pattern)


def _fits_dims(pattern: tuple[object, ...], value: tuple[object, ...], bound: Bound) -> bool:
    """Whether dims fit one by one; `*Ds` takes the rest."""
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


def arguments_of(hint: object, generic: type) -> tuple[object, ...]:
    """Return the parameters of a hint that is `generic[...]`, none for any other hint."""
    return get_args(hint) if get_origin(hint) is generic else ()
