"""A piece: the part of one request that a rank holds under one rule for its places.

It is a run of tokens of a chunked layout, or all tokens of the request that a dealt layout gives to the rank. Tokens count
from the request's first new token, places from the rank's first row.
"""

from dataclasses import dataclass
from typing import Protocol

from dsa_cp.layouts import DealtLayout, formulas
from dsa_cp.tools.prove.terms import Claim, Logic, Term


class Piece(Protocol):
    """The part of a request that a rank holds."""

    @property
    def rank(self) -> int:
        """The rank."""

    @property
    def request(self) -> int:
        """The request."""

    @property
    def name(self) -> str:
        """Which part of which request, for people."""

    @property
    def written(self) -> Term:
        """1 where the rank is the writer of the piece, else 0."""

    @property
    def first_place(self) -> Term:
        """Place of the first row on the rank."""

    @property
    def stop_place(self) -> Term:
        """The place after the last row."""

    @property
    def real(self) -> Term:
        """Rows of the piece that are no engine padding."""

    def holds(self, token: Term) -> Claim:
        """Return whether a token of the request is in the piece."""

    def place(self, token: Term) -> Term:
        """Return the place of a token that the piece holds."""

    def token(self, place: Term) -> Term:
        """Return the token at a place of the piece."""


@dataclass(frozen=True, eq=False)
class Chunk:
    """A piece that is a run of tokens.

    Attributes:
        rank: the rank.
        request: the request.
        name: which chunk of which request, for people.
        bounds: the first token, and the token after the last.
        written: 1 where the rank is the writer, else 0.
        first_place: place of the first row.
        extend_len: real tokens of the request.
        logic: what these values are.
    """

    rank: int
    request: int
    name: str
    bounds: tuple[Term, Term]
    written: Term
    first_place: Term
    extend_len: Term
    logic: Logic

    @property
    def stop_place(self) -> Term:
        """The place after the last row."""
        start, stop = self.bounds
        return self.first_place + (stop - start)

    @property
    def real(self) -> Term:
        """Rows of the chunk that are no engine padding."""
        return formulas.real_tokens(*self.bounds, self.extend_len, self.logic.arithmetic)

    def holds(self, token: Term) -> Claim:
        """Return whether a token is in the chunk."""
        start, stop = self.bounds
        return self.logic.both(start <= token, token < stop)

    def place(self, token: Term) -> Term:
        """Return the place of a token of the chunk."""
        return self.first_place + token - self.bounds[0]

    def token(self, place: Term) -> Term:
        """Return the token at a place of the chunk."""
        return self.bounds[0] + place - self.first_place


@dataclass(frozen=True, eq=False)
class Deal:
    """A piece that is every token of a request that is dealt to the rank.

    Attributes:
        layout: what deals the tokens.
        cp_size: ranks.
        rank: the rank.
        request: the request.
        first_token: where the request starts in the flattened batch.
        total: tokens of the flattened batch, engine padding included.
        lens: tokens of the request without engine padding, and with it.
        logic: what these values are.
    """

    layout: DealtLayout
    cp_size: int
    rank: int
    request: int
    first_token: Term
    total: Term
    lens: tuple[Term, Term]
    logic: Logic

    written = 1

    @property
    def name(self) -> str:
        """The rank's share of its request."""
        return f"share of request {self.request}"

    @property
    def first_place(self) -> Term:
        """Place of the first row on the rank."""
        return self.place(0)

    @property
    def stop_place(self) -> Term:
        """The place after the last row."""
        return self.place(self.lens[1])

    @property
    def real(self) -> Term:
        """Rows of the share that are no engine padding."""
        return self.place(self.lens[0]) - self.first_place

    def holds(self, token: Term) -> Claim:
        """Return whether a token is dealt to the rank."""
        ops = self.logic.arithmetic
        return self.layout.owner(self.first_token + token, self.total, self.cp_size, ops) == self.rank

    def place(self, token: Term) -> Term:
        """Return the place of a token of the share: the rank's tokens before it."""
        ops = self.logic.arithmetic
        return self.layout.count(self.first_token + token, self.total, self.cp_size, self.rank, ops)

    def token(self, place: Term) -> Term:
        """Return the token at a place of the share."""
        flat = self.layout.token_at(place, self.total, self.cp_size, self.rank, self.logic.arithmetic)
        return flat - self.first_token
