"""Reference of `select_topk`: the lightning indexer's scores in float64.

In float32 the order of sums, and with it the choice between near-equal keys, would depend on the number of ranks.
"""

import torch
from torch import Tensor

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, Ten, brand, stage
from dsa_contracts.dims import IndexHeadDim, IndexTopk, MaxPages, NumIndexHeads, NumPages, NumRequests, PageSize, RowBytes
from dsa_contracts.formats import RowFormat
from dsa_contracts.states import BF16, F32, I32, U8, Contiguous, Local, Packed, PerRequest, Plain, Pool, Rotated, UnitLast
from dsa_contracts.typevars import ND, RD, F, L, N
from dsa_cp.numerics.grouped_scales import dequantize_groups
from dsa_cp.numerics.paged_keys import row_blocks, slots_of_request
from dsa_cp.stages.split_kv import part_of


@stage(contracts.select_topk)
def select_topk(
    q_index: Ten[Local[L], Rotated, BF16, UnitLast, N, NumIndexHeads, IndexHeadDim],
    head_weights: Ten[Local[L], Plain, F32, UnitLast, N, NumIndexHeads],
    pool: Ten[Pool, Packed[F, Rotated], U8, Contiguous, NumPages, PageSize, RowBytes],
    causal_lens: Ten[Local[L], Plain, I32, Contiguous, N],
    request_of_row: Ten[Local[L], Plain, I32, Contiguous, N],
    page_table: Ten[PerRequest, Plain, I32, Contiguous, NumRequests, MaxPages],
    index_topk: int,
    row_format: RowFormat[F, ND, RD],
    batch: CpBatch[L],
) -> Ten[Local[L], Plain, I32, Contiguous, N, IndexTopk]:
    """See `dsa_contracts.stages.select_topk`."""
    every = torch.arange(index_topk, dtype=torch.int32, device=q_index.device)
    topk = torch.where(every < causal_lens[:, None], every, -1)
    chooses = torch.where(causal_lens > index_topk, causal_lens, 0)
    for request, blocks in row_blocks(request_of_row, chooses):
        slots = slots_of_request(page_table, request, blocks[-1].num_keys, pool.shape[1])
        keys = _key_values(pool.view(-1, pool.shape[-1])[slots], row_format).double()
        for block in blocks:
            scores = index_scores(q_index[block.rows], head_weights[block.rows], keys[: block.num_keys])
            topk[block.rows] = best_positions(scores, causal_lens[block.rows], index_topk)
    return brand(topk)


def _key_values(rows: Tensor, row_format: RowFormat[F, ND, RD]) -> Tensor:
    """Return the values of packed indexer keys: float32 [n, index_head_dim]."""
    codes = part_of(rows, row_format.part("k_index"))
    if not row_format.is_quantized:
        return codes.float()
    return dequantize_groups(codes, part_of(rows, row_format.part("scales")))


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
