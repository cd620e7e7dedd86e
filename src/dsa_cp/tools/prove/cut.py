"""`Cut`: a batch cut for the ranks of a group, composed of formulas as the tensor code composes them.

`dsa_cp.layouts` does this with tensors (`cumsum`, `repeat_interleave`, index puts); here it is written a second time, on
one value at a time, so that lengths can be z3 terms. On ints it gives what `build_batches` gives, which a test shows on
every case up to a bound, and `agreement` on sampled batches before each proof. The formulas are the layout's own methods.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.dsa.layout import Layout
from dsa_cp.layouts import ChunkedLayout, DealtLayout, formulas, symbolic_half
from dsa_cp.layouts.formulas import INTS
from dsa_cp.tools.prove.pieces import Chunk, Deal, Piece
from dsa_cp.tools.prove.terms import Logic, Term


@dataclass(frozen=True)
class Rules:
    """The steps of a composition that can be replaced; `right.RIGHT` has them as the tensor code does them.

    Attributes:
        first_row: row of a request's first token, from (cut, request).
        first_token: where a request starts in the flattened batch, engine padding included.
        total: tokens of the flattened batch, engine padding included.
        ordinal: decodes before a request, from (cut, request).
        first_place: place of the first row of a rank's slot, from (cut, rank, slot).
        rows: rows of a rank, engine padding included, from (cut, rank).
        written: whether a rank writes a request's rows, from (cut, rank, request): 1 or 0.
        fullest: rows of the fullest rank, from the cut.
        pad_target: `nnz_padded`, from the cut.
        rank_len: `nnz_local`, from (cut, rank).
        prefix_len: cached tokens of a request.
        position: position of a piece's token, from (cut, piece, token).
        causal_len: keys that a piece's token may see.
        restore: index of a request's token in the gathered rows, -1 where it is nowhere.
        slot_row: the row into whose slot a piece's token is written, -1 where it is not written.
        local_len: a rank's tokens among the first `length` of `total` tokens, from (cut, rank, length, total).
    """

    first_row: Callable[["Cut", int], Term]
    first_token: Callable[["Cut", int], Term]
    total: Callable[["Cut"], Term]
    ordinal: Callable[["Cut", int], Term]
    first_place: Callable[["Cut", int, int], Term]
    rows: Callable[["Cut", int], Term]
    written: Callable[["Cut", int, int], Term]
    fullest: Callable[["Cut"], Term]
    pad_target: Callable[["Cut"], Term]
    rank_len: Callable[["Cut", int], Term]
    prefix_len: Callable[["Cut", int], Term]
    position: Callable[["Cut", Piece, Term], Term]
    causal_len: Callable[["Cut", Piece, Term], Term]
    restore: Callable[["Cut", int, Term], Term]
    slot_row: Callable[["Cut", Piece, Term], Term]
    local_len: Callable[["Cut", int, Term, Term], Term]


@dataclass(frozen=True, eq=False)
class Cut:
    """A batch, a layout and a group size, with rules for what is derived from them.

    Attributes:
        layout: which rank holds which tokens.
        cp_size: ranks.
        extend: new tokens of each request.
        prefix: cached tokens of each request.
        padded: new tokens with engine padding, of each request.
        row_alignment: `nnz_padded` is a multiple of it.
        logic: what the lengths are.
        rules: how they are composed.
        decodes: whether each request is a decode; empty where none is.
    """

    layout: Layout
    cp_size: int
    extend: tuple[Term, ...]
    prefix: tuple[Term, ...]
    padded: tuple[Term, ...]
    row_alignment: Term
    logic: Logic
    rules: Rules
    decodes: tuple[bool, ...] = ()

    @property
    def num_requests(self) -> int:
        """Requests of the batch."""
        return len(self.extend)

    @property
    def nnz(self) -> Term:
        """Real tokens of the batch."""
        return sum(self.extend)

    @cached_property
    def dealt(self) -> DealtLayout | None:
        """The layout where it deals the tokens of the batch; None where it cuts each request into chunks."""
        half = symbolic_half(self.layout)
        return half if isinstance(half, DealtLayout) else None

    @cached_property
    def chunked(self) -> ChunkedLayout:
        """The layout where it cuts each request into chunks.

        Raises:
            ArgumentError: DSA602, it has no formulas, or deals tokens.
        """
        half = symbolic_half(self.layout)
        if isinstance(half, DealtLayout):
            raise ArgumentError(f"layout {half.name} deals the tokens of a batch; it cuts no request into chunks")
        return half

    def is_decode(self, request: int) -> bool:
        """Return whether a request is a decode."""
        return bool(self.decodes) and self.decodes[request]

    @cached_property
    def slots(self) -> tuple[tuple[int, int], ...]:
        """Request and half of each slot, in local order; all ranks have the same."""
        count = self.num_requests
        order = self.chunked.request_order(self.decodes or (False,) * count)
        at = (self.chunked.slot(slot, count, INTS) for slot in range(self.chunked.chunks_per_rank * count))
        return tuple((order[request], half) for request, half in at)

    def bounds(self, rank: int, slot: int) -> tuple[Term, Term]:
        """Return the first token of a rank's slot, and the token after its last; made once, since terms are dear."""
        if (rank, slot) not in self._known_bounds:
            self._known_bounds[rank, slot] = self._make_bounds(rank, slot)
        return self._known_bounds[rank, slot]

    @cached_property
    def _known_bounds(self) -> dict[tuple[int, int], tuple[Term, Term]]:
        """Bounds that were asked for before, by rank and slot."""
        return {}

    def _make_bounds(self, rank: int, slot: int) -> tuple[Term, Term]:
        """Return the bounds of a rank's slot, from the layout's formulas."""
        request, half = self.slots[slot]
        length, ops = self.padded[request], self.logic.arithmetic
        if self.is_decode(request):
            return self.chunked.decode_bounds(length, self.rules.ordinal(self, request), self.cp_size, rank, half, ops)
        return self.chunked.bounds(length, self.cp_size, rank, half, ops)

    def count_before(self, rank: int, length: Term) -> Term:
        """Return how many of the first `length` tokens of the flattened batch are dealt to the rank."""
        if self.dealt is None:
            raise ArgumentError(f"layout {self.layout.name} cuts requests into chunks; it deals no tokens")
        return self.dealt.count(length, self.rules.total(self), self.cp_size, rank, self.logic.arithmetic)

    @cached_property
    def pieces(self) -> tuple[tuple[Piece, ...], ...]:
        """The pieces of each rank, in local order."""
        if self.dealt is not None:
            dealt, requests = self.dealt, range(self.num_requests)
            return tuple(tuple(self._deal(dealt, rank, each) for each in requests) for rank in range(self.cp_size))
        slots = range(len(self.slots))
        return tuple(tuple(self._chunk(rank, slot) for slot in slots) for rank in range(self.cp_size))

    def _deal(self, dealt: DealtLayout, rank: int, request: int) -> Piece:
        """Return what is dealt to a rank of a request."""
        first, total = self.rules.first_token(self, request), self.rules.total(self)
        lens = (self.extend[request], self.padded[request])
        return Deal(dealt, self.cp_size, rank, request, first, total, lens, self.logic)

    def _chunk(self, rank: int, slot: int) -> Piece:
        """Return the chunk in one slot of a rank."""
        request, half = self.slots[slot]
        place, written = self.rules.first_place(self, rank, slot), self.rules.written(self, rank, request)
        name = f"decode {request}" if self.is_decode(request) else self.chunked.chunk_name(half, request)
        return Chunk(rank, request, name, self.bounds(rank, slot), written, place, self.extend[request], self.logic)

    @cached_property
    def all_pieces(self) -> tuple[Piece, ...]:
        """The pieces of all ranks, rank after rank."""
        return tuple(piece for pieces in self.pieces for piece in pieces)

    def pieces_of(self, request: int) -> list[Piece]:
        """Return the pieces of a request on all ranks."""
        return [piece for piece in self.all_pieces if piece.request == request]

    @cached_property
    def rank_rows(self) -> tuple[Term, ...]:
        """Rows of each rank, engine padding included."""
        return tuple(self.rules.rows(self, rank) for rank in range(self.cp_size))

    @cached_property
    def fullest(self) -> Term:
        """Rows of the fullest rank."""
        return self.rules.fullest(self)

    @cached_property
    def nnz_padded(self) -> Term:
        """Rows of every rank in the collective."""
        return self.rules.pad_target(self)

    def row(self, request: int, token: Term) -> Term:
        """Return the row of a request's token."""
        return formulas.row_of(self.rules.first_row(self, request), token)

    def gathered_index(self, piece: Piece, token: Term) -> Term:
        """Return where a piece's copy of a token stands after the collective."""
        return formulas.gathered_index(piece.rank, self.nnz_padded, piece.place(token))
