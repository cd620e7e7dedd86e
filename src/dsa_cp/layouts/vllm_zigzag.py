"""`VllmZigzag`: vLLM's DualChunkSwap without decode context parallelism, a zigzag of equal chunks.

Seven tokens A to G on two ranks, chunks of ceil(7 / 4) = 2, the last one shorter:

    tokens            A  B | C  D | E  F | G
    chunk                0 |    1 |    2 | 3
    rank                 0 |    1 |    1 | 0

    rank 0            A  B  G  _
    rank 1            C  D  E  F
    gathered          A  B  G  _ | C  D  E  F
    restore index     0  1  4  5  6  7  2

Eight tokens are cut as `Zigzag` cuts them: 0 1 6 7 on rank 0, 2 3 4 5 on rank 1, restore index 0 1 4 5 6 7 2 3.

Chunks that no token is left for are empty. Nine tokens in chunks of ceil(9 / 4) = 3 leave the fourth empty, one token
leaves rank 1 without a row:

    rank 0            0  1  2  _  _  _            rank 0            0
    rank 1            3  4  5  6  7  8            rank 1            _

With several requests a rank's order is request by request, head and then tail. Requests of seven and of eight tokens:

    rank 0            0  1  6 | 7  8 13 14        the first request's head and tail | the second's
    rank 1            2  3  4  5 | 9 10 11 12

Decodes stand before prefills, and each is on one rank, in turn. A prefill of four tokens (0 1 2 3) and two decodes (4, 5):

    rank 0            4 | 0  3
    rank 1            5 | 1  2
"""

from dataclasses import dataclass
from typing import ClassVar

from dsa_cp.layouts import formulas
from dsa_cp.layouts.formulas import Arithmetic, T
from dsa_cp.layouts.symbolic import ChunkedLayout, ChunkSizes, Decodes


@dataclass(frozen=True)
class VllmZigzag(ChunkedLayout):
    """Every token is on one rank; a chunk that no token is left for is empty, and a rank may hold no row.

    Row order: decodes in batch order, then prefills request by request, head chunk and then tail chunk.

    Source: vLLM 0.33, vllm/v1/worker/gpu/pcp_manager.py (`PCPManager`, DualChunkSwap) with prefill context parallelism
    and `dcp_world_size` 1, where `pcp_shard_decode_requests` is on; `VllmReplicated` is the other configuration.
    Differences:

    - vLLM fills padding rows with row 0 (`padded_gather_idx`); here a padding row is -1.
    - vLLM knows no engine padding here; a CUDA graph's padded size is a row alignment.
    - Against sglang's zigzag: equal chunks instead of remainder first, and request by request instead of all heads and
      then all tails.
    """

    decodes: ClassVar[Decodes] = Decodes.SHARDED
    chunk_sizes: ClassVar[ChunkSizes] = ChunkSizes.EQUAL

    @property
    def name(self) -> str:
        """`vllm_zigzag`."""
        return "vllm_zigzag"

    def slot(self, slot: T, num_requests: int, ops: Arithmetic[T]) -> tuple[T, T]:
        """Return request and half of a slot: request by request, head and then tail."""
        return formulas.vllm_slot(slot, ops)

    def bounds(self, length: T, cp_size: int, rank: T | int, half: T | int, ops: Arithmetic[T]) -> tuple[T, T]:
        """Return start and stop of a rank's head or tail chunk, equal chunks until no token is left."""
        return formulas.vllm_bounds(length, cp_size, rank, half, ops)
