"""The vocabulary: dims, orders of rows, states, the counts of an exchange, and the scope of one step."""

from dataclasses import dataclass

from dsa_contracts.core.errors import add_codes
from dsa_contracts.core.marks import F32, I64, Contiguous, Dim, Plain, Rows, State
from dsa_contracts.core.scope import Scope
from dsa_contracts.core.tensors import Ten

add_codes(
    {
        "MOE101": "counts of an exchange were made on another rank or in another step",
        "MOE102": "a row came to a rank that does not have its expert",
    }
)


class RoutedTokens(Dim):
    """Tokens of this rank."""


class TopK(Dim):
    """Experts of a token."""


class Choices(Dim):
    """Pairs of a token of this rank and one of its experts: `routed_tokens * top_k`."""


class Arrived(Dim):
    """Rows that ranks have sent to the experts of this rank."""


class LocalExperts(Dim):
    """Experts on this rank."""


class ModelWidth(Dim):
    """Width of a token."""


class ModelWidthOut(Dim):
    """Width of what an expert returns."""


class TokenOrder(Rows):
    """This rank's tokens, as they came."""

    stated = "always"


class SendOrder(Rows):
    """This rank's choices by the expert that they go to, tokens of one expert as they came."""

    stated = "always"


class ExpertOrder(Rows):
    """Rows at the rank of their experts: rank after rank of the senders, each in its own send order."""

    stated = "always"


class OwnExperts(Rows):
    """The experts of this rank, in order."""


class Dispatched(State):
    """Tokens at their expert, not yet computed."""


class Unweighted(State):
    """What experts return."""


class Weighted(State):
    """What experts return, times the router's weight of the choice."""


class RouterWeights(State):
    """Weights of a token's experts."""


class Combined(State):
    """The weighed sum over a token's experts."""


Tokens = Ten[TokenOrder, Plain, F32, Contiguous, RoutedTokens, ModelWidth]
Experts = Ten[TokenOrder, Plain, I64, Contiguous, RoutedTokens, TopK]
Weights = Ten[TokenOrder, RouterWeights, F32, Contiguous, RoutedTokens, TopK]
AtExperts = Ten[ExpertOrder, Dispatched, F32, Contiguous, Arrived, ModelWidth]
ExpertOfRow = Ten[ExpertOrder, Plain, I64, Contiguous, Arrived]
ExpertMatrices = Ten[OwnExperts, Plain, F32, Contiguous, LocalExperts, ModelWidthOut, ModelWidth]
Computed = Ten[ExpertOrder, Unweighted, F32, Contiguous, Arrived, ModelWidthOut]
Returned = Ten[SendOrder, Unweighted, F32, Contiguous, Choices, ModelWidthOut]
ReturnedWeighted = Ten[SendOrder, Weighted, F32, Contiguous, Choices, ModelWidthOut]
Out = Ten[TokenOrder, Combined, F32, Contiguous, RoutedTokens, ModelWidthOut]


@dataclass(frozen=True)
class Counts:
    """Rows that a rank exchanges.

    Attributes:
        send: rows that go to each rank.
        take: rows that each rank sends here.
        rank: the rank that they are for.
        step: the step whose routing they were counted from.
    """

    send: tuple[int, ...]
    take: tuple[int, ...]
    rank: int
    step: int


class Step(Scope):
    """One step on one rank.

    Args:
        number: which step, the same on every rank.
        num_experts: experts of the layer, a multiple of the number of ranks.
        size: ranks.
        rank: this rank.
    """

    noun = "step"

    def __init__(self, number: int, num_experts: int, size: int, rank: int) -> None:
        self.number, self.num_experts, self.size, self.rank = number, num_experts, size, rank
        super().__init__({LocalExperts: num_experts // size})

    @property
    def first_expert(self) -> int:
        """The first expert of this rank."""
        return self.rank * (self.num_experts // self.size)

    @property
    def where(self) -> str:
        """Which rank, which step."""
        return f"rank {self.rank} of {self.size}, step {self.number}"

    @property
    def signature(self) -> object:
        """All that contracts read."""
        return (Step, self.number, self.num_experts, self.size, self.rank)

    @property
    def fingerprint(self) -> str:
        """The same on all ranks."""
        return f"step={self.number} experts={self.num_experts}"
