"""The vocabulary: dims, which rows a rank holds, states, and the scope of one batch."""

from collections.abc import Sequence

from dsa_contracts.core.errors import add_codes
from dsa_contracts.core.marks import F32, Contiguous, Dim, Plain, Rows, State
from dsa_contracts.core.scope import Scope
from dsa_contracts.core.tensors import Ten

add_codes({"ULY101": "the heads of a layer cannot be divided among the ranks"})


class Seq(Dim):
    """Tokens of the whole sequence."""


class SeqLocal(Dim):
    """Tokens of the sequence that this rank holds."""


class Heads(Dim):
    """Attention heads of the layer."""


class HeadsLocal(Dim):
    """Attention heads that this rank computes."""


class HeadDim(Dim):
    """Width of a head."""


class SequenceShard(Rows):
    """This rank's tokens, with all heads."""

    stated = "always"


class HeadShard(Rows):
    """All tokens in the order of the sequence, with this rank's heads."""

    stated = "always"


class Attended(State):
    """What attention made of the values."""


Shard = Ten[SequenceShard, Plain, F32, Contiguous, SeqLocal, Heads, HeadDim]
Whole = Ten[HeadShard, Plain, F32, Contiguous, Seq, HeadsLocal, HeadDim]
AttendedShard = Ten[SequenceShard, Attended, F32, Contiguous, SeqLocal, Heads, HeadDim]
AttendedWhole = Ten[HeadShard, Attended, F32, Contiguous, Seq, HeadsLocal, HeadDim]


class Sharding(Scope):
    """One sequence on the ranks of a group.

    Args:
        lens: tokens of each rank, in the order of the sequence; a rank may have none.
        heads: heads of the layer, a multiple of the number of ranks.
        rank: this rank.
    """

    noun = "sequence"

    def __init__(self, lens: Sequence[int], heads: int, rank: int) -> None:
        self.lens, self.heads, self.rank = tuple(lens), heads, rank
        super().__init__({Seq: sum(lens), SeqLocal: lens[rank], Heads: heads, HeadsLocal: heads // len(lens)})

    @property
    def where(self) -> str:
        """Which rank."""
        return f"rank {self.rank} of {len(self.lens)}"

    @property
    def signature(self) -> object:
        """All that contracts read."""
        return (Sharding, self.lens, self.heads, self.rank)

    @property
    def fingerprint(self) -> str:
        """The same on all ranks."""
        return f"lens={list(self.lens)} heads={self.heads}"
