"""`Interleave`: the tokens of the flattened batch are dealt to the ranks in turn, `block` tokens at a time.

Eight tokens on two ranks, one at a time:

    tokens            0  1  2  3  4  5  6  7
    rank              0  1  0  1  0  1  0  1

    rank 0            0  2  4  6
    rank 1            1  3  5  7
    gathered          0  2  4  6 | 1  3  5  7
    restore index     0  4  1  5  2  6  3  7

Of seven tokens rank 1 has three, and is padded for the collective:

    rank 0            0  2  4  6
    rank 1            1  3  5  _
    gathered          0  2  4  6 | 1  3  5  _
    restore index     0  4  1  5  2  6  3

Borders of requests do not matter to the deal. Requests of five and three tokens in blocks of two: the block 4 5 crosses
the border, and is two segments of one rank.

    tokens            0  1 | 2  3 | 4    5 | 6  7
    request           0  0   0  0   0    1   1  1
    rank              0  0   1  1   0    0   1  1

    rank 0            0  1  4 | 5
    rank 1            2  3 | 6  7
"""

from dataclasses import dataclass

from dsa_contracts.core.errors import ArgumentError
from dsa_cp.layouts import formulas
from dsa_cp.layouts.formulas import Arithmetic, T
from dsa_cp.layouts.symbolic import DealtLayout


@dataclass(frozen=True)
class Interleave(DealtLayout):
    """Token i of the flattened batch, engine padding included, is on rank `(i // block) % cp_size`.

    Row order: the order of the flattened batch.

    Attributes:
        block: consecutive tokens that stay together, at least 1.

    Source: block 1 is sglang 0.5.15 `round-robin-split` (layers/attention/dsa/utils.py, dsa_cp_round_robin_split_data)
    and sglang 0.5.23 `InterleaveCPStrategy` (layers/cp/interleave.py). Blocks up to 64 are vLLM's
    `cp_kv_cache_interleave_size`, there for the KV cache of decode context parallelism. Differences:

    - sglang 0.5.15 asserts that the padded batch is a multiple of cp_size, 0.5.23 `can_apply` asks for cp_size tokens.
      Here any number of tokens is dealt, and a rank may hold no row.
    - sglang counts padding rows as rows of their rank; here they are marked and never counted.
    - sglang's `shard_per_request` (0.5.15 `dsa_cp_round_robin_split_q_seqs`) carries a running remainder to find a
      rank's rows of each request; here they are the segments.
    """

    block: int = 1

    def __post_init__(self) -> None:
        """Refuse a block that is no positive int; raises ArgumentError DSA602."""
        if not isinstance(self.block, int) or isinstance(self.block, bool):
            raise ArgumentError(f"block is {self.block!r}; it must be an int")
        if self.block < 1:
            raise ArgumentError(f"block is {self.block}; it must be at least 1")

    @property
    def name(self) -> str:
        """`interleave`, or `interleave(block=64)` where the block is not 1."""
        return "interleave" if self.block == 1 else f"interleave(block={self.block})"

    @property
    def run(self) -> int:
        """The block."""
        return self.block

    def owner(self, token: T, total: T | int, cp_size: int, ops: Arithmetic[T]) -> T:
        """Return the rank of a token of the flattened batch."""
        return formulas.interleave_owner(token, self.block, cp_size, ops)

    def count(self, length: T, total: T | int, cp_size: int, rank: T | int, ops: Arithmetic[T]) -> T:
        """Return how many of the first `length` tokens of the flattened batch are on the rank."""
        return formulas.interleave_count(length, self.block, cp_size, rank, ops)

    def token_at(self, place: T, total: T | int, cp_size: int, rank: T | int, ops: Arithmetic[T]) -> T:
        """Return the token of the flattened batch at a local place of the rank."""
        return formulas.interleave_token(place, self.block, cp_size, rank, ops)
