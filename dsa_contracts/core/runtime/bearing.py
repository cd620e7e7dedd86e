"""Whether a value is of a hint: the one place that asks beartype and, for a `Ten`, jaxtyping."""

from functools import cache
from typing import TypeVar, get_args, get_origin

import jaxtyping
import torch
from beartype import BeartypeConf
from beartype.door import is_bearable
from torch import Tensor

from dsa_contracts.core.matching import bound_of

_CONF = BeartypeConf(is_pep484_tower=True)
"""An int is a float here as it is for mypy."""


def bears(value: object, hint: object) -> bool:
    """Whether a value is of a hint; for a `Ten` this binds dims in jaxtyping's current context."""
    return is_bearable(value, _decidable(hint), conf=_CONF)  # type: ignore[arg-type]


def bind_dims(dims: dict[str, int]) -> None:
    """Bind dims in jaxtyping's current context, through tensors without memory whose sizes they are.

    One dim a tensor: the product of several may be more elements than a tensor can have.
    """
    for name, size in dims.items():
        bears(torch.empty(size, device="meta"), _one_dim(name))


@cache
def _decidable(hint: object) -> object:
    """Return the part of a hint that beartype can decide; the marks of this project's generics are compared elsewhere."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is type and isinstance(args[0], TypeVar):
        return type[bound_of(args[0])]
    is_ours = isinstance(origin, type) and origin.__module__ not in ("builtins", "collections.abc", "types")
    return origin if is_ours else hint


@cache
def _one_dim(name: str) -> object:
    """Return the jaxtyping class of a tensor with this one dim; made once, since beartype keeps each class it has met."""
    return jaxtyping.Shaped[Tensor, name]
