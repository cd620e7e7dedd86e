"""`Scope`: what the calls of one piece of work share. The core reads these members of it and nothing else.

A scope is one batch, one micro-batch, one step: the calls in it agree on the sizes of their dims, and a tensor that was made
in one is stale in the next. A vocabulary derives its own and says more; a contract names it as the type of a parameter.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ClassVar, TypeVar

import torch

from dsa_contracts.core.bound_dims import BoundDims, CheckLog
from dsa_contracts.core.marks import Dim, dim_name

Key = TypeVar("Key", bound=str | type[Dim])


class Scope:
    """One piece of work on one rank.

    Attributes:
        noun: what such a scope is called in messages.
        dims: sizes of dims, bound once and shared by all calls.
        log: what was checked.
        token: stands for the scope on brands; views of one scope share it.
        layer: the layer that calls now work for, None outside of a layer.
    """

    noun: ClassVar[str] = "scope"
    dims: BoundDims
    log: CheckLog
    token: object
    layer: int | None = None

    def __init__(self, sizes: Mapping[Key, int] | None = None, layer: int | None = None) -> None:
        """Start a scope with some dims bound: dims, or their written names, and sizes."""
        self.dims, self.log, self.token, self.layer = BoundDims(), CheckLog(), object(), layer
        for dim, size in (sizes or {}).items():
            self.dims.bind(dim if isinstance(dim, str) else dim_name(dim), size, self.noun)

    @property
    def where(self) -> str:
        """Rank, layer and whatever else tells where a call was made, in one line."""
        return "" if self.layer is None else f"layer {self.layer}"

    @property
    def device(self) -> torch.device | None:
        """Where tensors of the scope are; None: wherever they are."""
        return None

    @property
    def signature(self) -> object:
        """Host facts that contracts read, as one object for all scopes that agree in them; its hash is its identity."""
        return type(self)

    @property
    def fingerprint(self) -> str:
        """What ranks of a group must agree on before each collective."""
        return ""

    @property
    def bound_marks(self) -> dict[str, object]:
        """What the type parameters of its class stand for, by name."""
        parameters = getattr(type(self), "__parameters__", ())
        return {parameter.__name__: mark for parameter, mark in zip(parameters, self.type_marks, strict=False)}

    @property
    def type_marks(self) -> tuple[object, ...]:
        """The marks that the type parameters of its annotation stand for: `Batch[L]` binds `L` to the first of them."""
        return ()

    def variant_of(self, rows: object) -> str:
        """Return what of the scope the meaning of a rows mark depends on, in words; empty where it depends on nothing."""
        return ""

    def meaning_of(self, size: int) -> str:
        """Return which rows a tensor of that many rows may hold, for messages; empty where nothing is known."""
        return ""

    def check_itself(self, stage: str, location: str) -> None:
        """Raise where the scope's own tensors are not what its numbers say; called in values mode before each call."""


def lone_scope() -> Scope:
    """Return a scope for one call that belongs to none; what is made in it is stale nowhere."""
    scope = Scope()
    scope.token = None
    return scope


_CURRENT: ContextVar[Scope | None] = ContextVar("dsa_contracts_scope", default=None)


def current_scope() -> Scope | None:
    """Return the scope that calls without one belong to, None outside of a `forward`."""
    return _CURRENT.get()


@contextmanager
def forward(scope: Scope | None) -> Iterator[None]:
    """Give the calls in this block a scope, for functions that take none: one block for each micro-batch.

    A block may stand in another, and is seen by its own thread, or task, alone.

    Args:
        scope: the scope; None for calls that belong to none, as decodes do.
    """
    before = _CURRENT.set(scope)
    try:
        yield
    finally:
        _CURRENT.reset(before)
