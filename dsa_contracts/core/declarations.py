"""Brands at the edge: what somebody states of a tensor that no stage made."""

from typing import TypeVar

from torch import Tensor

from dsa_contracts.core.brands import Brand, Kind, make_brand
from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.core.matching import substitute
from dsa_contracts.core.scope import Scope
from dsa_contracts.core.views import set_brand

T = TypeVar("T", bound=Tensor)

LATEST_LIMIT = 256
"""Declarations that one scope keeps ready; past it all are made anew."""


def declare(tensor: Tensor, rows: object, state: object, scope: Scope, producer: str) -> T:  # type: ignore[type-var]
    """Brand a tensor that no stage made, at the edge where it enters the path.

    Args:
        tensor: any tensor; the same object is returned, for the type checker as what the context asks for.
        rows: rows mark; a type variable of the scope's class stands for what the scope has there.
        state: state mark.
        scope: the scope, and its layer, that the tensor belongs to.
        producer: who vouches for it, as it shall stand in messages.

    Raises:
        ArgumentError: DSA602, a nested tensor, which has no rows that a contract could name.
    """
    _refuse_nested(tensor, producer)
    # Marks are compared by identity: a generic one takes longer to hash than to find, and is one object where it is written.
    made = scope.dims.declared.get((id(rows), id(state), producer))
    signature = scope.signature
    if made is None or made[0] is not rows or made[1] is not state or made[3] != signature:
        made = (rows, state, _kind(rows, state, scope, producer), signature)
        if len(scope.dims.declared) >= LATEST_LIMIT:
            scope.dims.declared.clear()
        scope.dims.declared[id(rows), id(state), producer] = made
    kind: Kind = made[2]
    set_brand(tensor, Brand(kind, kind.key, scope.token, scope.layer))
    return tensor  # type: ignore[return-value]


def _kind(rows: object, state: object, scope: Scope, producer: str) -> Kind:
    """Return the kind of rows in a scope."""
    marks = scope.bound_marks
    concrete = substitute(rows, marks)
    return Kind(concrete, substitute(state, marks), scope.variant_of(concrete), producer)


def _refuse_nested(tensor: Tensor, producer: str) -> None:
    if tensor.is_nested:
        raise ArgumentError(f"{producer}: a nested tensor has no rows that a contract could name; give dense rows")


def declare_lasting(tensor: Tensor, rows: object, state: object, producer: str, layer: int | None = None) -> T:  # type: ignore[type-var]
    """Brand a tensor that outlives scopes: a cache of one layer, or a table.

    Raises:
        ArgumentError: DSA602, a nested tensor.
    """
    _refuse_nested(tensor, producer)
    set_brand(tensor, make_brand(Kind(rows, state, "", producer), None, layer))
    return tensor  # type: ignore[return-value]
