"""Tensors as engines hold them, where a contract names them otherwise: halves of rows, K in three dims, a cache of slots."""

from collections.abc import Callable

import torch
from torch import Tensor

from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.core.marks import Plain
from dsa_contracts.core.parts import Parts
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.states import Packed

_ROTATED_PARTS = ("k_rope", "k_index")
"""Parts that RoPE concerns; they are in the RoPE state of the packed row. The others are values or scales."""


class KvParts(Parts):
    """Rows that are held part by part, where a contract takes packed rows: `KvParts(k_nope, k_rope)`.

    Attributes:
        names: the parts by the names that the row formats give them, in the order of their bytes.
    """

    def __init__(
        self,
        k_nope: Tensor | None = None,
        k_rope: Tensor | None = None,
        *,
        scales: Tensor | None = None,
        k_index: Tensor | None = None,
    ) -> None:
        """Keep the parts that are given; each `[rows, width]`, `[rows, 1, width]` will do.

        Raises:
            ArgumentError: DSA602, no part is given, or one is no tensor of two or three dims.
        """
        given = {"k_nope": k_nope, "k_index": k_index, "scales": scales, "k_rope": k_rope}
        held = {name: part for name, part in given.items() if part is not None}
        if not held:
            raise ArgumentError("KvParts without a part; give k_nope and k_rope, or k_index and scales")
        for name, part in held.items():
            if not isinstance(part, Tensor) or part.dim() not in (2, 3):
                got = f"{part.dim()} dims" if isinstance(part, Tensor) else type(part).__name__
                raise ArgumentError(f"{name} is {got}; a part is a tensor [rows, width] or [rows, 1, width]")
        super().__init__(*held.values())
        self.names = tuple(held)

    def states(self, state: object) -> tuple[object, ...]:
        """Return the state of each part: of those that RoPE concerns the RoPE state of the row, of the others `Plain`."""
        marks = getattr(state, "__args__", (None, None))
        rope = marks[1] if getattr(state, "__origin__", None) is Packed else None
        return tuple(rope if name in _ROTATED_PARTS else Plain for name in self.names)

    def misfit(self, row_format: RowFormat[object, object, object]) -> str:  # type: ignore[type-var]
        """Return which part is not as many bytes wide as its row format says; empty where all are, in bytes a row."""
        known = {part.name: part.num_bytes for part in row_format.parts}
        for name, part in zip(self.names, self.tensors, strict=True):
            got = torch.Size(part.shape[1:]).numel() * part.element_size()
            if name not in known:
                return f"{name}, which rows of {row_format.name} do not have"
            if got != known[name]:
                return f"{name} of {got} bytes, of {row_format.name} it has {known[name]}"
        return ""


def without_heads(k: Tensor) -> Tensor:
    """Return K of one head, `[rows, 1, width]`, as `[rows, width]`: a view. K without that dim is given back."""
    return k.squeeze(1) if k.dim() == 3 and k.shape[1] == 1 else k


def paged(page_size: int) -> Callable[[Tensor], Tensor]:
    """Return what turns a cache of slots into one of pages of bytes, without a copy.

    Args:
        page_size: slots of a page.

    Returns:
        A function that views `[slots, 1, width]` or `[slots, width]` of any dtype as uint8 `[pages, page_size, bytes]`.
        Slots behind the last whole page are left out; a tensor that is no such cache is given back as it is.

    Raises:
        ArgumentError: DSA602, `page_size` is below 1.
    """
    if page_size < 1:
        raise ArgumentError(f"page_size is {page_size}; it must be at least 1")

    def view(cache: Tensor) -> Tensor:
        slots = without_heads(cache)
        if slots.dim() != 2 or slots.stride(-1) != 1:
            return cache
        rows = slots.view(torch.uint8)
        pages = rows.shape[0] // page_size
        pitch = rows.stride(0)
        return rows.as_strided((pages, page_size, rows.shape[1]), (page_size * pitch, pitch, 1))

    return view
