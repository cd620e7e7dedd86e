"""The vocabulary: dims, rows that stay and rows that travel, states of a running softmax, and the scope of one sequence."""

from collections.abc import Sequence
from copy import copy
from itertools import pairwise

from dsa_contracts.core.errors import add_codes
from dsa_contracts.core.marks import F32, I64, Contiguous, Dim, Plain, Rows, State
from dsa_contracts.core.scope import Scope
from dsa_contracts.core.tensors import Ten

add_codes(
    {
        "RING101": "positions of a block are not those of the rank whose block it should be",
        "RING102": "one rank has more pairs of a query and a key than another",
    },
    {
        "RING101": "pass the positions that travelled with the block",
        "RING102": "give each rank a piece from the start and one from the end of the sequence",
    },
)

Spans = tuple[tuple[int, int], ...]
"""Pieces of a sequence: where each starts, and where it stops."""


class QueryTokens(Dim):
    """Tokens whose queries this rank holds."""


class BlockTokens(Dim):
    """Tokens of the block that is here at a hop; blocks may differ in length."""

    varies = True


class ComingTokens(Dim):
    """Tokens of the block that comes for the next hop."""

    varies = True


class RingHeads(Dim):
    """Attention heads."""


class RingHeadDim(Dim):
    """Width of a head."""


class OwnTokens(Rows):
    """This rank's tokens: they stay."""


class Travelling(Rows):
    """The tokens of the block that is here at this hop."""

    stated = "always"


class InFlight(Rows):
    """A block on its way to the next rank; `ring.next_block` states whose it is when it has come."""


class RunningMax(State):
    """Largest score so far."""


class RunningSum(State):
    """Sum of the exponentials of scores so far, under the running maximum."""


class RunningOut(State):
    """Sum of values so far, weighed by the same exponentials, not yet divided."""


class Out(State):
    """Output over the keys seen."""


class NaturalLse(State):
    """log to base e of the softmax's denominator."""


class BinaryLse(State):
    """log to base 2 of the softmax's denominator, as FlashInfer returns it."""


Queries = Ten[OwnTokens, Plain, F32, Contiguous, QueryTokens, RingHeads, RingHeadDim]
QueryPositions = Ten[OwnTokens, Plain, I64, Contiguous, QueryTokens]
Block = Ten[Travelling, Plain, F32, Contiguous, BlockTokens, RingHeads, RingHeadDim]
BlockPositions = Ten[Travelling, Plain, I64, Contiguous, BlockTokens]
Sent = Ten[InFlight, Plain, F32, Contiguous, ComingTokens, RingHeads, RingHeadDim]
Max = Ten[OwnTokens, RunningMax, F32, Contiguous, QueryTokens, RingHeads]
Sum = Ten[OwnTokens, RunningSum, F32, Contiguous, QueryTokens, RingHeads]
Acc = Ten[OwnTokens, RunningOut, F32, Contiguous, QueryTokens, RingHeads, RingHeadDim]
Partial = Ten[OwnTokens, Out, F32, Contiguous, QueryTokens, RingHeads, RingHeadDim]
LseE = Ten[OwnTokens, NaturalLse, F32, Contiguous, QueryTokens, RingHeads]
Lse2 = Ten[OwnTokens, BinaryLse, F32, Contiguous, QueryTokens, RingHeads]


def balanced(length: int, size: int) -> tuple[Spans, ...]:
    """Return the pieces of each rank, of equal work: of 2 * size chunks rank r has chunk r and the r-th from the end."""
    each, more = divmod(length, 2 * size)
    starts = [at * each + min(at, more) for at in range(2 * size + 1)]
    chunks = list(pairwise(starts))
    return tuple((chunks[rank], chunks[-1 - rank]) for rank in range(size))


class Ring(Scope):
    """One sequence on a ring of ranks, at one hop.

    Args:
        spans: pieces of the sequence that each rank holds, in rank order.
        rank: this rank.
    """

    noun = "ring"

    def __init__(self, spans: Sequence[Spans], rank: int) -> None:
        self.spans, self.rank, self.size, self.hop = tuple(spans), rank, len(spans), 0
        super().__init__({QueryTokens: len(self.positions_of(rank))})

    def at_hop(self, hop: int) -> "Ring":
        """Return the same ring at another hop: the same dims, and the same sequence for brands."""
        other = copy(self)
        other.hop = hop
        return other

    @property
    def owner(self) -> int:
        """The rank whose block is here at this hop: blocks go to the next rank."""
        return (self.rank - self.hop) % self.size

    def positions_of(self, rank: int) -> list[int]:
        """Return the positions of a rank's tokens, in the order in which it holds them."""
        return [at for start, stop in self.spans[rank] for at in range(start, stop)]

    def pairs_of(self, rank: int) -> int:
        """Return how many pairs of a query and a key a rank computes: a token sees itself and all before it."""
        return sum(at + 1 for at in self.positions_of(rank))

    @property
    def where(self) -> str:
        """Which rank, which hop."""
        return f"rank {self.rank} of {self.size}, hop {self.hop}"

    @property
    def signature(self) -> object:
        """All that contracts read."""
        return (Ring, self.spans, self.rank, self.hop)

    @property
    def fingerprint(self) -> str:
        """The same on all ranks."""
        return f"spans={self.spans} hop={self.hop}"

    def variant_of(self, rows: object) -> str:
        """Return whose block travelling rows are."""
        return f"the block of rank {self.owner}" if rows is Travelling else ""
