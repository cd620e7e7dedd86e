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

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.dsa.formulas import TENSORS, interleave_count, interleave_token
from dsa_contracts.dsa.layout import Layout, RankRows, SegmentTable
from dsa_cp.layouts.tables import lens_tensor, segment_table


@dataclass(frozen=True)
class Interleave(Layout):
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

    def segment_tables(self, padded_lens: Sequence[int], cp_size: int) -> tuple[SegmentTable, ...]:
        """Return each rank's segments: its blocks, cut at the borders of requests.

        Args:
            padded_lens: tokens of each request, engine padding included.
            cp_size: ranks.

        Raises:
            BatchError: DSA301 (lengths), DSA302 (cp_size).
        """
        lens = lens_tensor(padded_lens, cp_size)
        stops = lens.cumsum(0)
        return tuple(self._rank_table(stops - lens, stops[-1], cp_size, rank) for rank in range(cp_size))

    def count_rows(self, extend_lens: Sequence[int], padded_lens: Sequence[int], cp_size: int) -> RankRows:
        """Return how many of each request's tokens are dealt to each rank; arguments and errors of `segment_tables`."""
        lens, ranks = lens_tensor(padded_lens, cp_size), torch.arange(cp_size).unsqueeze(1)
        firsts = lens.cumsum(0) - lens
        stops = firsts + torch.tensor(extend_lens)
        dealt = (interleave_count(at, self.block, cp_size, ranks, TENSORS) for at in (firsts, stops, lens.sum()))
        before, until, whole = dealt
        return RankRows(tuple((until - before).sum(1).tolist()), tuple(whole.flatten().tolist()))

    def _rank_table(self, firsts: Tensor, total: Tensor, cp_size: int, rank: int) -> SegmentTable:
        """Return one rank's segments, from the first token of each request and the tokens of the batch."""
        rows = interleave_count(total, self.block, cp_size, rank, TENSORS)
        blocks = torch.arange(0, int(rows), self.block)
        borders = interleave_count(firsts, self.block, cp_size, rank, TENSORS)
        cuts = torch.unique(torch.cat((blocks, borders, rows.unsqueeze(0))))
        start = interleave_token(cuts[:-1], self.block, cp_size, rank, TENSORS)
        last = interleave_token(cuts[1:] - 1, self.block, cp_size, rank, TENSORS)
        request = torch.searchsorted(firsts, start, right=True) - 1
        return segment_table(request, start - firsts[request], last + 1 - firsts[request])
