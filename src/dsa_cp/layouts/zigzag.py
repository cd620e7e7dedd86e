"""`Zigzag`: each request cut into `2 * cp_size` chunks, a rank holds one early and one late chunk of each.

Causal attention costs a token as many keys as stand before it; an early and a late chunk together cost every rank the
same. One request of eight tokens on two ranks is cut into four chunks of two:

    tokens            0  1 | 2  3 | 4  5 | 6  7
    chunk                0 |    1 |    2 |    3
    rank                 0 |    1 |    1 |    0

    rank 0            0  1  6  7                  head chunk 0, tail chunk 3
    rank 1            2  3  4  5                  head chunk 1, tail chunk 2
    gathered          0  1  6  7 | 2  3  4  5
    restore index     0  1  4  5  6  7  2  3      where each token stands in the gathered rows

Of seven tokens the first three chunks have two and the last has one, so that rank 0 is padded for the collective:

    rank 0            0  1  6  _
    rank 1            2  3  4  5
    gathered          0  1  6  _ | 2  3  4  5
    restore index     0  1  4  5  6  7  2

With several requests a rank's order is the head chunks of all requests, then the tail chunks of all requests. Requests
of eight and of three tokens (8 9 10, chunks of 1, 1, 1, 0) on two ranks:

    rank 0            0  1  8 | 6  7              heads of both requests | tail of the first; the second's is empty
    rank 1            2  3  9 | 4  5 10
"""

from dataclasses import dataclass
from typing import ClassVar

from dsa_cp.layouts import formulas
from dsa_cp.layouts.formulas import Arithmetic, T
from dsa_cp.layouts.symbolic import ChunkedLayout, ChunkSizes


@dataclass(frozen=True)
class Zigzag(ChunkedLayout):
    """Every token is on one rank; a request shorter than `2 * cp_size` tokens leaves some of its chunks empty.

    Row order: the head chunks of all requests in batch order, then the tail chunks of all requests.

    Source: sglang 0.5.15 `in-seq-split` (layers/utils/cp_utils.py, prepare_context_parallel_metadata) and sglang 0.5.23
    `ZigzagCPStrategy` (layers/cp/zigzag.py). Differences:

    - sglang takes a request for context parallelism only from `2 * cp_size` tokens on (0.5.23 `can_apply`; 0.5.15's
      `can_dsa_cp_split` asks that of the batch's total only). Here any length is cut, and a rank may hold no row.
    - sglang keeps empty chunks as zeros in its split lists; here an empty segment is not listed.
    - sglang adds the padding of a batch to its last request and cuts the padded length, and counts padding rows as
      rows; here every request may be padded, the cut is the same, and padding rows are marked and never counted.
    - 0.5.15 leaves the prefix out of `kv_len_prev` and `kv_len_next`, for its indexer to add; 0.5.23 adds it. Here
      positions and causal lens always hold the prefix.
    """

    chunk_sizes: ClassVar[ChunkSizes] = ChunkSizes.EVEN

    @property
    def name(self) -> str:
        """`zigzag`."""
        return "zigzag"

    def slot(self, slot: T, num_requests: int, ops: Arithmetic[T]) -> tuple[T, T]:
        """Return request and half of a slot: the heads of all requests, then the tails of all requests."""
        return formulas.zigzag_slot(slot, num_requests, ops)

    def bounds(self, length: T, cp_size: int, rank: T | int, half: T | int, ops: Arithmetic[T]) -> tuple[T, T]:
        """Return the first token of a rank's head or tail chunk and the token after its last, remainder first."""
        return formulas.zigzag_bounds(length, cp_size, rank, half, ops)
