"""`VllmReplicated`: vLLM's DualChunkSwap beside decode context parallelism; short requests and decodes are on every rank.

A request that fills all its chunks is cut as `VllmZigzag` cuts it. One that would leave a chunk empty is whole on every
rank, and rank 0 is its one writer. Nine tokens in chunks of ceil(9 / 4) = 3 leave the fourth empty; `w` marks the written
copies:

    rank 0            0w 1w 2w 3w 4w 5w 6w 7w 8w
    rank 1            0  1  2  3  4  5  6  7  8
    restore index     0  1  2  3  4  5  6  7  8   into rank 0's copy

Decodes stand before prefills, on every rank. A prefill of four tokens (0 1 2 3) and a decode (4):

    rank 0            4w | 0w 3w
    rank 1            4  | 1w 2w
    restore index     1  4  5  2  0
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from dsa_cp.layouts import formulas
from dsa_cp.layouts.formulas import Arithmetic, T
from dsa_cp.layouts.symbolic import ChunkedLayout, ChunkSizes, Decodes


@dataclass(frozen=True)
class VllmReplicated(ChunkedLayout):
    """Every token is on one rank, or, where it is of a decode or of a request too short to cut, on all; rank 0 writes those.

    Row order: decodes in batch order, then prefills request by request, head chunk and then tail chunk.

    Source: vLLM 0.33, vllm/v1/worker/gpu/pcp_manager.py (`PCPManager.replicated_requests`) with `dcp_world_size` above 1,
    where `pcp_shard_decode_requests` is off. Differences:

    - There each rank's KV cache holds a part of the positions (decode context parallelism), and a rank drops the rows
      whose slot is another rank's. Which slots are a rank's own is said by the batch; the layout says which of the
      copies of a row stands for it: that of rank 0, as `gathered_kv_write_mask` and `hidden_restore_idx` have it.
    - vLLM does not send the rows of decodes through the gather, since every rank has them; here they are rows as others.
    - Padding rows and engine padding as in `VllmZigzag`.
    """

    decodes: ClassVar[Decodes] = Decodes.REPLICATED
    chunk_sizes: ClassVar[ChunkSizes] = ChunkSizes.EQUAL

    @property
    def name(self) -> str:
        """`vllm_replicated`."""
        return "vllm_replicated"

    def slot(self, slot: T, num_requests: int, ops: Arithmetic[T]) -> tuple[T, T]:
        """Return request and half of a slot: request by request, head and then tail."""
        return formulas.vllm_slot(slot, ops)

    def bounds(self, length: T, cp_size: int, rank: T | int, half: T | int, ops: Arithmetic[T]) -> tuple[T, T]:
        """Return start and stop of a rank's head or tail chunk; a replicated request is the head of every rank."""
        return formulas.replicated_bounds(length, cp_size, rank, half, ops)

    def replicates(self, length: T, cp_size: int, ops: Arithmetic[T]) -> Any:
        """Return whether equal chunks would leave one of them empty."""
        return formulas.is_replicated(length, cp_size, ops)

    def written(self, length: T, cp_size: int, rank: T | int, ops: Arithmetic[T]) -> T | int:
        """Return 1 where the rank writes its rows of the request, 0 where rank 0 writes them for all ranks."""
        return formulas.replicated_written(length, cp_size, rank, ops)
