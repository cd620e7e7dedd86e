"""`Cut`: a batch cut for the ranks of a group, composed of formulas as the tensor code composes them.

`dsa_cp.layouts` does this with tensors (`cumsum`, `repeat_interleave`, index puts); here it is written a second time, on
one value at a time, so that lengths can be z3 terms. On ints it gives what `build_batches` gives, which a test shows on
every case up to a bound. The formulas themselves are those of `dsa_contracts.dsa.formulas`, looked up when they are called.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from dsa_contracts.dsa import formulas
from dsa_contracts.dsa.formulas import INTS
from dsa_contracts.dsa.layout import Layout
from dsa_cp.layouts import Interleave, VllmZigzag
from dsa_cp.tools.prove.pieces import Chunk, Deal, Piece
from dsa_cp.tools.prove.terms import Logic, Term


@dataclass(frozen=True)
class Rules:
    """The steps of a composition that can be replaced; `right.RIGHT` has them as the tensor code does them.

    Attributes:
        first_row: row of a request's first token, from (cut, request).
        first_token: where a request starts in the flattened batch, engine padding included.
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
    """

    layout: Layout
    cp_size: int
    extend: tuple[Term, ...]
    prefix: tuple[Term, ...]
    padded: tuple[Term, ...]
    row_alignment: Term
    logic: Logic
    rules: Rules

    @property
    def num_requests(self) -> int:
        """Requests of the batch."""
        return len(self.extend)

    @property
    def nnz(self) -> Term:
        """Real tokens of the batch."""
        return sum(self.extend)

    @property
    def block(self) -> int:
        """Block of an interleave; 0 for a layout that cuts each request into chunks."""
        return self.layout.block if isinstance(self.layout, Interleave) else 0

    def slot(self, slot: int) -> tuple[int, int]:
        """Return request and half of a slot."""
        if isinstance(self.layout, VllmZigzag):
            return formulas.vllm_slot(slot, INTS)
        return formulas.zigzag_slot(slot, self.num_requests, INTS)

    def bounds(self, rank: int, slot: int) -> tuple[Term, Term]:
        """Return the first token of a rank's slot, and the token after its last."""
        request, half = self.slot(slot)
        bounds = formulas.vllm_bounds if isinstance(self.layout, VllmZigzag) else formulas.zigzag_bounds
        return bounds(self.padded[request], self.cp_size, rank, half, self.logic.arithmetic)

    def count_before(self, rank: int, length: Term) -> Term:
        """Return how many of the first `length` tokens of the flattened batch an interleave deals to the rank."""
        return formulas.interleave_count(length, self.block, self.cp_size, rank, self.logic.arithmetic)

    @cached_property
    def pieces(self) -> tuple[tuple[Piece, ...], ...]:
        """The pieces of each rank, in local order."""
        make = self._deal if self.block else self._chunk
        count = self.num_requests * (1 if self.block else 2)
        return tuple(tuple(make(rank, slot) for slot in range(count)) for rank in range(self.cp_size))

    def _deal(self, rank: int, request: int) -> Piece:
        """Return what an interleave deals to a rank of a request."""
        first = self.rules.first_token(self, request)
        lens = (self.extend[request], self.padded[request])
        return Deal(self.block, self.cp_size, rank, request, first, lens, self.logic)

    def _chunk(self, rank: int, slot: int) -> Piece:
        """Return the chunk in one slot of a rank."""
        request, half = self.slot(slot)
        place, written = self.rules.first_place(self, rank, slot), self.rules.written(self, rank, request)
        return Chunk(rank, request, half, self.bounds(rank, slot), written, place, self.extend[request], self.logic)

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
