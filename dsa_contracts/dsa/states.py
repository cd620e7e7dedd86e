"""The rows, orders and states of the attention path: marks for `Ten[rows, state, ...]`.

mypy reads them as type arguments; at run time they are compared with the brand that a stage put on its output. The four
type variables that the marks themselves take stand here too; `typevars` has all of them.

Integers are told apart by what they count or index: no step of the path concerns their values, so that each such mark is a
kind of `Plain`, but two of them never stand for each other, whatever their sizes.
"""

from typing import Generic, TypeVar

from dsa_contracts.core.marks import Plain, Rows, RowStride, State
from dsa_contracts.dsa.dims import RowBytes
from dsa_contracts.dsa.layout import Layout

L = TypeVar("L", bound=Layout)
"""The layout of the batch."""

O = TypeVar("O", bound="Order")  # noqa: E741 - the letter of "order"
"""The order of global rows. One value in a call."""

P = TypeVar("P", bound="RopeState")
"""Raw or Rotated."""

F = TypeVar("F", bound="FormatMark")
"""The row format. One value in a call."""


class Order:
    """Order of the rows of a tensor that holds rows of all ranks."""


class Sequence(Order):
    """Request by request, token by token: the order of the flattened batch."""


class RankMajor(Order, Generic[L]):
    """All rows of rank 0, then of rank 1, ...: the order a collective leaves, padding included."""


class Local(Rows, Generic[L]):
    """This rank's rows, in the local order of layout `L`.

    With the dim `nnz_local` it holds real rows only; with `nnz_padded` it also holds padding rows.
    """

    stated = "always"


class Global(Rows, Generic[O]):
    """Rows of all ranks, in order `O`."""

    stated = "always"


class Pool(Rows):
    """Slots of the paged KV pool."""

    is_store = True
    stated = "in a layer"
    how_stated = "indexing a cache drops the brand: state each layer's pool with dsa_contracts.declare_lasting"


class PerRequest(Rows):
    """One row a request of the batch, all requests, in batch order."""


class Table(Rows):
    """Rows indexed by position (the cos/sin table)."""


class RopeState(State):
    """Base of the two RoPE states."""


class Raw(RopeState):
    """RoPE is still to be applied."""


class Rotated(RopeState):
    """RoPE has been applied, once."""


class Packed(State, Generic[F, P]):
    """Bytes of packed rows of format `F`, whose rope part is in RoPE state `P`."""


class KeyCounts(Plain):
    """How many keys of its own request a row may see: causal lengths. 0 for a row that sees none."""


class Positions(Plain):
    """Where tokens stand in their own request, prefix included: what RoPE is applied with."""


class RequestIds(Plain):
    """Which request of the batch a row belongs to, counted from 0 in batch order: a row of the page table."""


class TokenSlots(Plain):
    """Slots of the paged KV pool, `page * page_size + offset`; a negative one is no slot."""


class PageIds(Plain):
    """Pages of the KV pool."""


class RowIds(Plain):
    """Rows of the batch, counted in sequence order over all requests; -1 for padding."""


class RowPlaces(Plain):
    """Where rows stand among padded or gathered rows: an index into these, which counts padding rows too."""


class KeyIds(Plain):
    """Keys by their position in the row's own request, as the indexer chooses them; -1 for none."""


class FormatMark:
    """Base of the row format marks; `row_formats` holds the widths and offsets."""


class Bf16Row(FormatMark):
    """bf16 latent, bf16 rope part: 1152 bytes at 512 + 64."""


class Fp8Row(FormatMark):
    """Flat e4m3 latent and rope part under one scale: 576 bytes at 512 + 64."""


class Fp8Row656(FormatMark):
    """e4m3 latent, one float32 scale for each 128 of it, bf16 rope part: 656 bytes at 512 + 64."""


class IndexBf16Row(FormatMark):
    """bf16 indexer key: 256 bytes at 128."""


class IndexFp8Row(FormatMark):
    """e4m3 indexer key and one float32 scale: 132 bytes at 128."""


class PackedRowStride(RowStride):
    """Rows one packed row apart: a column slice of packed rows, not a copy."""

    row_dim = RowBytes
