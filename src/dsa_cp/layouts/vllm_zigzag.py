"""`VllmZigzag`: vLLM's DualChunkSwap, a zigzag of equal chunks in which short requests are on every rank.

Seven tokens A to G on two ranks, chunks of ceil(7 / 4) = 2, the last one shorter:

    tokens            A  B | C  D | E  F | G
    chunk                0 |    1 |    2 | 3
    rank                 0 |    1 |    1 | 0

    rank 0            A  B  G  _
    rank 1            C  D  E  F
    gathered          A  B  G  _ | C  D  E  F
    restore index     0  1  4  5  6  7  2

Eight tokens are cut as `Zigzag` cuts them: 0 1 6 7 on rank 0, 2 3 4 5 on rank 1, restore index 0 1 4 5 6 7 2 3.

A request that would leave one of its chunks empty is whole on every rank, and rank 0 is its one writer. Nine tokens in
chunks of ceil(9 / 4) = 3 leave the fourth empty; `w` marks the written copies:

    rank 0            0w 1w 2w 3w 4w 5w 6w 7w 8w
    rank 1            0  1  2  3  4  5  6  7  8
    restore index     0  1  2  3  4  5  6  7  8   into rank 0's copy

With several requests a rank's order is request by request, head and then tail. Requests of seven and of eight tokens:

    rank 0            0  1  6 | 7  8 13 14        the first request's head and tail | the second's
    rank 1            2  3  4  5 | 9 10 11 12
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dsa_contracts.dsa.formulas import TENSORS, vllm_bounds, vllm_slot, vllm_written
from dsa_contracts.dsa.layout import Layout, SegmentTable
from dsa_cp.layouts.tables import lens_tensor, segment_table


@dataclass(frozen=True)
class VllmZigzag(Layout):
    """Every token is on one rank, or, where its request leaves a chunk empty, on all ranks and written by rank 0.

    Row order: request by request, head chunk and then tail chunk.

    Source: vLLM 0.33, vllm/v1/worker/gpu/pcp_manager.py (`PCPManager`, DualChunkSwap). Differences:

    - vLLM replicates a prefill that leaves a chunk empty only where decode context parallelism is on as well
      (`replicated_requests`, dcp_world_size > 1); without it empty chunks are skipped, and a rank may hold no row of
      the request. Here such a request is always replicated.
    - vLLM puts decodes before prefills, and replicates them or gives each to one rank in turn. A batch here is a
      prefill batch and keeps its order.
    - vLLM fills padding rows with row 0 (`padded_gather_idx`); here a padding row is -1.
    - vLLM knows no engine padding here; a CUDA graph's padded size is a row alignment.
    - Against sglang's zigzag: equal chunks instead of remainder first, and request by request instead of all heads and
      then all tails.
    """

    @property
    def name(self) -> str:
        """`vllm_zigzag`."""
        return "vllm_zigzag"

    def segment_tables(self, padded_lens: Sequence[int], cp_size: int) -> tuple[SegmentTable, ...]:
        """Return each rank's segments, request by request.

        Args:
            padded_lens: tokens of each request, engine padding included.
            cp_size: ranks.

        Raises:
            BatchError: DSA301 (lengths), DSA302 (cp_size).
        """
        lens = lens_tensor(padded_lens, cp_size)
        request, half = vllm_slot(torch.arange(2 * len(lens)), TENSORS)
        ranks = torch.arange(cp_size).unsqueeze(1)
        start, stop = vllm_bounds(lens[request], cp_size, ranks, half, TENSORS)
        written = vllm_written(lens[request], cp_size, ranks, TENSORS).bool()
        return tuple(segment_table(request, start[rank], stop[rank], written[rank]) for rank in range(cp_size))
