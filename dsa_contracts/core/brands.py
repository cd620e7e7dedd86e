"""Brands: the state that no shape can show, kept on a tensor object between two stages.

In development mode a stage's output carries its rows, state, scope, layer and producer as an attribute.
The next stage compares them with its contract without reading data. A view takes its rows over (`views`); what an operation
makes is unknown, which is counted and not an error.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

from torch import Tensor

from dsa_contracts.core.marks import mark_text
from dsa_contracts.core.matching import Bound, substitute
from dsa_contracts.core.scope import Scope
from dsa_contracts.core.tensors import TensorSpec

ATTRIBUTE = "_contract_brand"
"""Where a tensor object keeps its brand's fields: as a plain tuple, which is taken apart in a third of a named one's time."""

T = TypeVar("T", bound=Tensor)


_KEYS: dict[tuple[object, object, str, str], object] = {}


@dataclass(frozen=True)
class Kind:
    """The part of a brand that is the same in every scope. None: not known.

    Attributes:
        rows: concrete rows mark.
        state: concrete state mark.
        variant: what of the scope the rows depend on, see `Scope.variant_of`; empty where they depend on nothing.
        producer: stage and output, as in `project.hidden`; the scope and its tensor, as in `batch.numbers`; or free text.
        is_declared: whether a caller vouches for the tensor, so that the producer is free text. One that a stage returned or
            a scope holds has a producer that the `sources` of contracts are compared with.
    """

    rows: object
    state: object
    variant: str
    producer: str
    is_declared: bool = True

    @cached_property
    def key(self) -> object:
        """One object for all kinds that no contract tells apart; its hash is its identity.

        These are the kinds with the same rows, state and variant; of those that a caller declared, whoever vouches for them.
        A call that passed is recognised by the keys of its arguments, so that what `sources` name must be part of them.
        """
        return _KEYS.setdefault((self.rows, self.state, self.variant, "" if self.is_declared else self.producer), object())


class Brand(NamedTuple):
    """A tensor's state: a `Kind`, and the scope and the layer that it was made for.

    Attributes:
        kind: rows, state, variant and producer.
        key: `kind.key`.
        scope_token: the scope's token; None for a tensor that outlives scopes.
        layer: the layer; None for a tensor that serves every layer of its scope.
    """

    kind: Kind
    key: object
    scope_token: object
    layer: int | None

    def describe(self) -> str:
        """Return the brand in one line."""
        layer = "" if self.layer is None else f", layer {self.layer}"
        variant = f", {self.kind.variant}" if self.kind.variant else ""
        rows = "unknown rows" if self.kind.rows is None else mark_text(self.kind.rows)
        state = "unknown state" if self.kind.state is None else mark_text(self.kind.state)
        return f"{rows}, {state}{variant}{layer}, from {self.kind.producer}"


def brand_of(tensor: Tensor) -> Brand | None:
    """Return a tensor's brand, None where it has none."""
    found = getattr(tensor, ATTRIBUTE, None)
    return None if found is None else Brand(*found)


def states_rows(tensor: Tensor) -> bool:
    """Whether a tensor's brand says which rows it holds; a stage whose inputs do not say cannot say it of its outputs."""
    found = brand_of(tensor)
    return found is not None and found.kind.rows is not None


def make_brand(kind: Kind, scope_token: object, layer: int | None) -> Brand:
    """Return the brand of a kind for a scope and a layer."""
    return Brand(kind, kind.key, scope_token, layer)


def brand(tensor: Tensor) -> T:  # type: ignore[type-var]
    """State, for the type checker, that `tensor` is what the signature of the enclosing stage returns.

    At run time it gives back the same object. The brand itself is put on by the stage's wrapper, after its checks.
    """
    return tensor  # type: ignore[return-value]


def output_kind(spec: TensorSpec, bound: Bound, scope: Scope, producer: str) -> Kind:
    """Return the kind of an output under the bindings that its call's inputs made."""
    rows = substitute(spec.rows, bound)
    return Kind(rows, substitute(spec.state, bound), scope.variant_of(rows), producer, is_declared=False)
