"""The lightning indexer in float64: scores of all keys of a request, and the best of them for each row.

In float32 the order of sums, and with it the choice between near-equal keys, would depend on the number of ranks.
"""

import torch
from torch import Tensor

from dsa_cp.numerics.grouped_scales import dequantize_groups
from dsa_cp.numerics.paged_keys import row_blocks, slots_of_request

SCALE_BYTES = 4


def best_keys(
    q_index: Tensor,
    head_weights: Tensor,
    pool: Tensor,
    causal_lens: Tensor,
    request_of_row: Tensor,
    page_table: Tensor,
    count: int,
    is_quantized: bool,
) -> Tensor:
    """Return int32 [n, count]: positions of the best keys of each row, rising; -1 fills the rest.

    Args:
        q_index: bf16 [n, heads, d].
        head_weights: float32 [n, heads].
        pool: uint8 [num_pages, page_size, row_bytes].
        causal_lens: int32 [n].
        request_of_row: int32 [n].
        page_table: int32 [num_requests, max_pages].
        count: keys to choose.
        is_quantized: whether rows are e4m3 codes and one float32 scale, not bf16.

    Sync: requests are looped over on the host.
    """
    every = torch.arange(count, dtype=torch.int32, device=q_index.device)
    chosen = torch.where(every < causal_lens[:, None], every, -1)
    chooses = torch.where(causal_lens > count, causal_lens, 0)
    for request, blocks in row_blocks(request_of_row, chooses):
        slots = slots_of_request(page_table, request, blocks[-1].num_keys, pool.shape[1])
        keys = key_values(pool.view(-1, pool.shape[-1])[slots], is_quantized).double()
        for block in blocks:
            scores = index_scores(q_index[block.rows], head_weights[block.rows], keys[: block.num_keys])
            chosen[block.rows] = best_positions(scores, causal_lens[block.rows], count)
    return chosen


def key_values(rows: Tensor, is_quantized: bool) -> Tensor:
    """Return the values of packed indexer keys, uint8 [n, row_bytes]: float32 [n, d]."""
    if not is_quantized:
        return rows.view(torch.bfloat16).float()
    codes = rows[:, :-SCALE_BYTES].view(torch.float8_e4m3fn)
    scales = rows[:, -SCALE_BYTES:].contiguous().view(torch.float32)
    return dequantize_groups(codes, scales)


def index_scores(q_index: Tensor, head_weights: Tensor, keys: Tensor) -> Tensor:
    """Return float64 [n, num_keys]: the sum over heads of weight * relu(q . k).

    Args:
        q_index: [n, heads, d].
        head_weights: [n, heads].
        keys: float64 [num_keys, d].
    """
    products = (q_index.double().flatten(0, 1) @ keys.T).view(*q_index.shape[:2], -1)
    return (products.relu_() * head_weights.double()[..., None]).sum(dim=1)


def best_positions(scores: Tensor, causal_lens: Tensor, count: int) -> Tensor:
    """Return int32 [n, count]: positions of the `count` best visible keys, rising; the earlier of equal ones.

    Args:
        scores: float64 [n, num_keys]; a NaN is worse than every number.
        causal_lens: [n], each more than `count` and at most num_keys.
        count: keys to choose.
    """
    at = torch.arange(scores.shape[1], device=scores.device)
    scores = scores.masked_fill((at >= causal_lens[:, None]) | scores.isnan(), float("-inf"))
    threshold = scores.kthvalue(scores.shape[1] - count + 1, dim=1, keepdim=True).values
    above, level = scores > threshold, scores == threshold
    room = count - above.sum(dim=1, keepdim=True)
    chosen = above | (level & (level.cumsum(dim=1) <= room))
    return chosen.nonzero()[:, 1].view(-1, count).int()
