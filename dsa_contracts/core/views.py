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


def place_of_rows(tensor: Tensor) -> Place | None:
    """Return where the rows of a tensor lie; None where it has no rows, or a layout that is not strided."""
    if tensor.layout is not torch.strided or tensor.is_nested:
        return None
    return _place_of((tensor.shape, tensor.stride(), int(tensor.storage_offset()), tensor.element_size()))


@lru_cache(maxsize=8192)
def _place_of(facts: "Facts") -> Place | None:
    """Return the place of rows from shape, strides, offset and size of an element."""
    sizes, strides, offset, item = facts
    if not sizes:
        return None
    first = 0
    while first + 1 < len(sizes) and sizes[first] == 1:
        first += 1  # unsqueezed in front of its rows
    width = item
    for size, stride in zip(sizes[first + 1 :], strides[first + 1 :], strict=True):
        width = 0 if size == 0 else width + (size - 1) * stride * item
    return Place(sizes[first], strides[first] * item if sizes[first] > 1 else 0, offset * item, width)


Facts = tuple[Any, tuple[int, ...], int, int]
"""Shape, strides, offset and size of an element: what a place is computed from when somebody asks."""


class _Notes:
    """The brands of tensors on one storage. Ranks in threads may share one: what is appended is never taken away by another.

    Attributes:
        written: facts and brands in the order in which they were noted, of which only the last few may be new.
        places: how many of them have been read, and the places that they leave.
    """

    __slots__ = ("places", "written")

    def __init__(self) -> None:
        self.written: list[tuple[Facts, BrandFields]] = []
        self.places: tuple[int, dict[Place, BrandFields]] = (0, {})

    def read(self) -> dict[Place, BrandFields]:
        """Return the branded places. One that shares bytes with a later one and cuts them into other rows is forgotten."""
        done, places = self.places
        if done == len(self.written):
            return places
        places = dict(places)
        written = self.written[done:]
        for facts, fields in written:
            place = _place_of(facts)
            if place is None:
                continue
            others = [other for other in places if other == place or (place.meets(other) and not place.goes_with(other))]
            for other in others:
                del places[other]
            places[place] = fields
        self.places = (done + len(written), places)
        return places


def remember(tensor: Tensor) -> None:
    """Note a tensor's brand at its storage; what place it is of is computed when a view asks."""
    fields = getattr(tensor, ATTRIBUTE, None)
    if fields is None or tensor.layout is not torch.strided:
        return
    storage: Any = tensor.untyped_storage()
    try:
        notes: _Notes = storage._contract_brands
        if len(notes.written) >= NOTES_LIMIT:
            notes = storage._contract_brands = _Notes()
    except AttributeError:
        notes = storage._contract_brands = _Notes()
    notes.written.append(((tensor.shape, tensor.stride(), int(tensor.storage_offset()), tensor.element_size()), fields))


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

    What was left in memory by another scope or for another layer says nothing of what stands there now: buffers are used
    again. Returns whether the tensor has a brand now.
    """
    if hasattr(tensor, ATTRIBUTE):
        return getattr(tensor, ATTRIBUTE) is not None
    place = place_of_rows(tensor)
    found = None if place is None else _find(tensor, place)
    if place is None or found is None:
        return False
    shown, (kind, key, token, layer) = found
    if token is not None and token is not scope.token:
        return False
    if layer is not None and scope.layer is not None and layer != scope.layer:
        return False
    if shown.width != place.width and shown.holds(place):
        kind = _part_of(kind)
        key = kind.key
    setattr(tensor, ATTRIBUTE, (kind, key, token, layer))
    return True


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
        notes = getattr(tensor.untyped_storage(), "_contract_brands", None)
    except (RuntimeError, NotImplementedError):
        return {}  # a tensor without a storage, as some subclasses are
    return {} if notes is None else notes.read()


_PARTS: dict[Kind, Kind] = {}


def _part_of(kind: Kind) -> Kind:
    """Return the kind of a part of rows: the same rows, in a state that is not known."""
    found = _PARTS.get(kind)
    if found is None:
        if len(_PARTS) >= NOTES_LIMIT:
            _PARTS.clear()
        found = _PARTS.setdefault(kind, Kind(kind.rows, None, kind.variant, f"{kind.producer}, part of a row"))
    return found
