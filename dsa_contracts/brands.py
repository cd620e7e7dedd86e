"""Brands: the state that no shape can show, kept on a tensor object between two stages.

In development mode a stage's output carries its rows, order, RoPE state, batch, layer and producer as an attribute.
The next stage compares them with its contract without reading data. Views and operations drop the attribute: such a
tensor is unknown, which is counted and not an error.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeVar, get_args, get_origin

from torch import Tensor

from dsa_contracts.errors import ArgumentError
from dsa_contracts.tensors import TensorSpec, mark_text
from dsa_contracts.typevars import L

if TYPE_CHECKING:
    from dsa_contracts.batch import CpBatch

ATTRIBUTE = "_dsa_brand"
"""Where a tensor object keeps its brand's fields: as a plain tuple, which is taken apart in a third of a named one's time."""

T = TypeVar("T", bound=Tensor)


_KEYS: dict[tuple[object, object, str], object] = {}


@dataclass(frozen=True)
class Kind:
    """The part of a brand that is the same in every batch. None: not known.

    Attributes:
        rows: concrete rows mark, as in `Local[Zigzag]`.
        state: concrete state mark, as in `Packed[Fp8Row, Rotated]`.
        layout: written name of the layout with its parameters; empty where the rows belong to no layout.
        producer: stage and output, as in `rope_quantize.kv`.
    """

    rows: object
    state: object
    layout: str
    producer: str

    @cached_property
    def key(self) -> object:
        """One object for all kinds with the same rows, state and layout, whoever made them; its hash is its identity."""
        return _KEYS.setdefault((self.rows, self.state, self.layout), object())


class Brand(NamedTuple):
    """A tensor's state: a `Kind`, and the batch and the layer that it was made for.

    Attributes:
        kind: rows, state, layout and producer.
        key: `kind.key`.
        batch_token: the batch's token; None for a tensor that outlives batches.
        layer: the layer; None for a tensor that serves every layer of its batch.
    """

    kind: Kind
    key: object
    batch_token: object
    layer: int | None

    def describe(self) -> str:
        """Return the brand in one line."""
        layer = "" if self.layer is None else f", layer {self.layer}"
        layout = f", {self.kind.layout}" if self.kind.layout else ""
        rows = "unknown rows" if self.kind.rows is None else mark_text(self.kind.rows)
        state = "unknown state" if self.kind.state is None else mark_text(self.kind.state)
        return f"{rows}, {state}{layout}{layer}, from {self.kind.producer}"


def brand_of(tensor: Tensor) -> Brand | None:
    """Return a tensor's brand, None where it has none."""
    found = getattr(tensor, ATTRIBUTE, None)
    return None if found is None else Brand(*found)


def states_rows(tensor: Tensor) -> bool:
    """Whether a tensor's brand says which rows it holds; a stage whose inputs do not say cannot say it of its outputs."""
    found = brand_of(tensor)
    return found is not None and found.kind.rows is not None


def set_brand(tensor: Tensor, brand: Brand | None) -> None:
    """Put a brand on a tensor object, or take its brand off."""
    setattr(tensor, ATTRIBUTE, None if brand is None else tuple(brand))


def make_brand(kind: Kind, batch_token: object, layer: int | None) -> Brand:
    """Return the brand of a kind for a batch and a layer."""
    return Brand(kind, kind.key, batch_token, layer)


def brand(tensor: Tensor) -> T:  # type: ignore[type-var]
    """State, for the type checker, that `tensor` is what the signature of the enclosing stage returns.

    At run time it gives back the same object. The brand itself is put on by the stage's wrapper, after its checks.
    """
    return tensor  # type: ignore[return-value]


def declare(tensor: Tensor, rows: object, state: object, batch: "CpBatch[L]", producer: str) -> T:  # type: ignore[type-var]
    """Brand a tensor that no stage made, at the edge where it enters the path.

    Args:
        tensor: any tensor; the same object is returned, for the type checker as what the context asks for.
        rows: rows mark, as in `Local[L]`; `L` stands for the batch's layout.
        state: state mark.
        batch: the batch (and, through `at_layer`, the layer) that the tensor belongs to.
        producer: who vouches for it, as it shall stand in messages.

    Raises:
        ArgumentError: DSA602, a nested tensor, which has no rows that a contract could name.
    """
    _refuse_nested(tensor, producer)
    bound: dict[str, object] = {"L": type(batch.layout)}
    concrete = substitute(rows, bound)
    kind = Kind(concrete, substitute(state, bound), layout_text(concrete, batch.layout.name), producer)
    set_brand(tensor, make_brand(kind, batch.token, batch.layer))
    return tensor  # type: ignore[return-value]


def _refuse_nested(tensor: Tensor, producer: str) -> None:
    if tensor.is_nested:
        raise ArgumentError(f"{producer}: a nested tensor has no rows that a contract could name; give dense rows")


def declare_lasting(tensor: Tensor, rows: object, state: object, producer: str, layer: int | None = None) -> T:  # type: ignore[type-var]
    """Brand a tensor that outlives batches: a KV pool of one layer, or a cos/sin table.

    Raises:
        ArgumentError: DSA602, a nested tensor.
    """
    _refuse_nested(tensor, producer)
    set_brand(tensor, make_brand(Kind(rows, state, "", producer), None, layer))
    return tensor  # type: ignore[return-value]


def layout_text(rows: object, layout_name: str) -> str:
    """Return the layout's name where the rows mark depends on a layout, else an empty text."""
    text = mark_text(rows)
    return layout_name if text.startswith("Local[") or "RankMajor[" in text else ""


def unify(pattern: object, value: object, bound: dict[str, object]) -> bool:
    """Whether a concrete mark fits a pattern; type variables of the pattern are bound by name on the way."""
    if value is None:
        return True
    if isinstance(pattern, TypeVar):
        known = bound.setdefault(pattern.__name__, value)
        return known == value
    origin = get_origin(pattern)
    if origin is None:
        return pattern is value
    if get_origin(value) is not origin:
        return False
    pairs = zip(get_args(pattern), get_args(value), strict=True)
    return all(unify(inner, got, bound) for inner, got in pairs)


def substitute(pattern: object, bound: dict[str, object]) -> object:
    """Return the concrete mark that a pattern stands for, None where one of its type variables is not bound."""
    if isinstance(pattern, TypeVar):
        return bound.get(pattern.__name__)
    origin = get_origin(pattern)
    if origin is None:
        return pattern
    inner = tuple(substitute(arg, bound) for arg in get_args(pattern))
    return None if None in inner else origin[inner]


def output_kind(spec: TensorSpec, bound: dict[str, object], layout_name: str, producer: str) -> Kind:
    """Return the kind of an output under the bindings that its call's inputs made."""
    rows = substitute(spec.rows, bound)
    return Kind(rows, substitute(spec.state, bound), layout_text(rows, layout_name), producer)
