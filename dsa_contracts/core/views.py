"""Brands of views: what a tensor without a brand takes over from one with a brand whose rows it shows.

A view is a new object, so it does not have the attribute that a brand is. It keeps the rows if each of its rows lies within
the same row of branded memory: after `view`, `squeeze`, `unsqueeze`, a change of dtype, or a slice of columns. A slice of
rows, or rows in other places, are other rows; a store (`Rows.is_store`) may also be cut into larger groups. The state is
kept where a whole row is shown: half of a packed row is not packed, so its state is unknown.

Where branded memory is found: at the tensor that torch says a view was made from, and at the storage object, which is one
for all tensors on it and ends with them. What is declared, and what a watched call returned, is noted at both. What a stage
returns is noted at its storage only where torch keeps no link to it, since a storage object costs a fifth of a whole check:
a change of dtype, which torch does not link either, drops the brand of a stage's result. Content that changes in place
behind a brand is not seen (docs/decisions.md).
"""

from functools import lru_cache
from typing import Any, NamedTuple, get_origin

import torch
from torch import Tensor

from dsa_contracts.core.brands import ATTRIBUTE, Brand, Kind
from dsa_contracts.core.scope import Scope

NOTES_LIMIT = 4096
"""Brands that one storage notes; past it those before are forgotten. A cache of many layers has one a layer."""

BrandFields = tuple[Kind, object, object, int | None]


class Place(NamedTuple):
    """Where the rows of a tensor lie in its storage, in bytes.

    Attributes:
        rows: number of rows.
        pitch: bytes from one row to the next; 0 where there are fewer than two.
        start: first byte of row 0.
        width: bytes from there to the end of row 0.
    """

    rows: int
    pitch: int
    start: int
    width: int

    def holds(self, other: "Place") -> bool:
        """Whether each row of `other` lies within the same row of this place."""
        if (self.rows, self.pitch) != (other.rows, other.pitch):
            return False
        return self.start <= other.start and other.start + other.width <= self.start + self.width

    def regroups(self, other: "Place") -> bool:
        """Whether `other` is the same memory in larger groups, less than one of which is left out at the end."""
        return self.start == other.start and other.end <= self.end < other.end + max(other.pitch, 1)

    def meets(self, other: "Place") -> bool:
        """Whether the two have bytes between their first and last in common."""
        return self.start < other.end and other.start < self.end

    @property
    def end(self) -> int:
        """The byte behind the last row."""
        return self.start + max(self.rows - 1, 0) * self.pitch + self.width

    def goes_with(self, other: "Place") -> bool:
        """Whether both cut the same memory into the same rows, as two columns of one buffer do."""
        apart = abs(self.start - other.start)
        return (self.rows, self.pitch) == (other.rows, other.pitch) and (self.rows < 2 or apart < self.pitch)


Facts = tuple[Any, tuple[int, ...], int]
"""Shape, strides and size of an element: what, with an offset, a place is computed from when somebody asks."""


def facts_of(tensor: Tensor) -> Facts:
    """Return what of a tensor's place is the same for all tensors that look alike."""
    return tensor.shape, tensor.stride(), tensor.element_size()


def place_of_rows(tensor: Tensor) -> Place | None:
    """Return where the rows of a tensor lie; None where it has no rows, or a layout that is not strided."""
    if tensor.layout is not torch.strided or tensor.is_nested:
        return None
    return _place_of(facts_of(tensor), int(tensor.storage_offset()))


@lru_cache(maxsize=8192)
def _place_of(facts: Facts, offset: int) -> Place | None:
    sizes, strides, item = facts
    if not sizes:
        return None
    first = 0
    while first + 1 < len(sizes) and sizes[first] == 1:
        first += 1  # unsqueezed in front of its rows
    width = item
    for size, stride in zip(sizes[first + 1 :], strides[first + 1 :], strict=True):
        width = 0 if size == 0 else width + (size - 1) * stride * item
    return Place(sizes[first], strides[first] * item if sizes[first] > 1 else 0, offset * item, width)


Notes = list[tuple[Facts, int, BrandFields]]
"""What a storage keeps: facts, offset and brand of each branded tensor on it, in the order in which they were noted."""


def note(tensor: Tensor, facts: Facts, fields: BrandFields) -> None:
    """Note a brand at the storage of a tensor. Notes are only appended: ranks in threads may share a storage."""
    storage: Any = tensor.untyped_storage()
    try:
        written: Notes = storage._contract_brands
    except AttributeError:
        storage._contract_brands = [(facts, tensor.storage_offset(), fields)]
        return
    if len(written) >= NOTES_LIMIT:
        written = storage._contract_brands = []
    written.append((facts, int(tensor.storage_offset()), fields))


def _read(storage: Any) -> dict[Place, BrandFields]:
    """Return the branded places of a storage. One that shares bytes with a later one, in other rows, is forgotten."""
    written: Notes | None = getattr(storage, "_contract_brands", None)
    if written is None:
        return {}
    source, done, places = getattr(storage, "_contract_places", (written, 0, {}))
    if source is not written:
        done, places = 0, {}
    if done == len(written):
        return places
    new, places = written[done:], dict(places)
    for facts, offset, fields in new:
        place = _place_of(facts, offset)
        if place is None:
            continue
        others = [other for other in places if other == place or (place.meets(other) and not place.goes_with(other))]
        for other in others:
            del places[other]
        places[place] = fields
    storage._contract_places = (written, done + len(new), places)
    return places


def remember(tensor: Tensor) -> None:
    """Note a tensor's brand at its storage, for views that torch does not link to it."""
    fields = getattr(tensor, ATTRIBUTE, None)
    if fields is not None and tensor.layout is torch.strided:
        note(tensor, facts_of(tensor), fields)


def set_brand(tensor: Tensor, brand: Brand | None) -> None:
    """Put a brand on a tensor object, and where each of its views will find it; or take its brand off."""
    setattr(tensor, ATTRIBUTE, None if brand is None else tuple(brand))
    remember(tensor)


def brand_result(tensor: Tensor, brand: Brand) -> None:
    """Put a brand on what a stage returned, and where views will find it that torch does not link to it."""
    setattr(tensor, ATTRIBUTE, tuple(brand))
    if needs_storage(tensor):
        remember(tensor)


def needs_storage(tensor: Tensor) -> bool:
    """Whether a tensor is a view, or one in whose place torch would not say so: made in inference mode."""
    return tensor._base is not None or tensor.is_inference()


def adopt(tensor: Tensor, scope: Scope) -> bool:
    """Give a tensor without a brand that of the memory that it shows, if that is of this scope and layer.

    What a scope left in memory says nothing in another scope or layer: buffers are used again. What outlives scopes, as a
    cache of one layer, stays what it is. Returns whether the tensor has a brand now.
    """
    if hasattr(tensor, ATTRIBUTE):
        return getattr(tensor, ATTRIBUTE) is not None
    place = place_of_rows(tensor)
    found = None if place is None else _find(tensor, place)
    if place is None or found is None:
        return False
    shown, (kind, key, token, layer) = found
    if token is not None and (token is not scope.token or not _is_of(layer, scope.layer)):
        return False
    if shown.width != place.width and shown.holds(place):
        kind = _part_of(kind)
        key = kind.key
    setattr(tensor, ATTRIBUTE, (kind, key, token, layer))
    return True


def _is_of(layer: int | None, now: int | None) -> bool:
    """Whether what was made for a layer, or for any, goes with the layer that calls now work for, or with none."""
    return layer is None or now is None or layer == now


def _find(tensor: Tensor, place: Place) -> tuple[Place, BrandFields] | None:
    """Return the branded place that holds a tensor's rows, the narrowest and then the latest of several."""
    found = [(other, brand) for other, brand in _places_at(tensor).items() if _shows(place, other, brand[0])]
    base = tensor._base
    fields = None if base is None else getattr(base, ATTRIBUTE, None)
    if base is not None and fields is not None:
        whole = place_of_rows(base)
        if whole is not None and _shows(place, whole, fields[0]):
            found.insert(0, (whole, fields))
    return min(reversed(found), key=lambda one: one[0].width, default=None)


def _shows(place: Place, branded: Place, kind: Kind) -> bool:
    """Whether a tensor at one place shows the rows, or the store, that a brand at another is of."""
    is_store = getattr(get_origin(kind.rows) or kind.rows, "is_store", False)
    return branded.holds(place) or (is_store and branded.regroups(place))


def _places_at(tensor: Tensor) -> dict[Place, BrandFields]:
    """Return the branded places of a tensor's storage."""
    try:
        return _read(tensor.untyped_storage())
    except (RuntimeError, NotImplementedError):
        return {}  # a tensor without a storage, as some subclasses are


_PARTS: dict[Kind, Kind] = {}


def _part_of(kind: Kind) -> Kind:
    """Return the kind of a part of rows: the same rows, in a state that is not known."""
    found = _PARTS.get(kind)
    if found is None:
        if len(_PARTS) >= NOTES_LIMIT:
            _PARTS.clear()
        found = _PARTS.setdefault(kind, Kind(kind.rows, None, kind.variant, f"{kind.producer}, part of a row"))
    return found
