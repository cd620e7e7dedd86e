"""The implementation, in torch."""

import torch
from torch import Tensor

from dsa_contracts.core.brands import brand
from dsa_contracts.core.comm import Exchange
from dsa_contracts.core.runtime.stage import stage
from examples.ulysses import head_exchange
from examples.ulysses.shards import AttendedShard, AttendedWhole, Shard, Sharding, Whole


def _bytes(rows: Tensor) -> Tensor:
    """Return rows as bytes [n, width]."""
    return rows.contiguous().flatten(1).view(torch.uint8)


@stage(head_exchange.to_heads)
def to_heads(x: Shard, sharding: Sharding, comm: Exchange) -> Whole:
    """Send each rank its heads of these tokens."""
    tokens, heads, width = x.shape
    own = heads // comm.size
    by_rank = x.view(tokens, comm.size, own * width).transpose(0, 1).reshape(comm.size * tokens, own * width)
    taken = comm.all_to_all(_bytes(by_rank), [tokens] * comm.size, sharding.lens)
    return brand(taken.view(torch.float32).view(-1, own, width))


@stage(head_exchange.attend)
def attend(q: Whole, k: Whole, v: Whole, scale: float, sharding: Sharding) -> AttendedWhole:
    """Causal softmax attention."""
    scores = torch.einsum("qhd,khd->hqk", q, k) * scale
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    return brand(torch.einsum("hqk,khd->qhd", weights, v).contiguous())


@stage(head_exchange.to_sequence)
def to_sequence(x: AttendedWhole, sharding: Sharding, comm: Exchange) -> AttendedShard:
    """Send each rank its tokens of these heads."""
    tokens, own, width = sharding.lens[comm.rank], x.shape[1], x.shape[2]
    taken = comm.all_to_all(_bytes(x), sharding.lens, [tokens] * comm.size)
    by_rank = taken.view(torch.float32).view(comm.size, tokens, own, width)
    return brand(by_rank.transpose(0, 1).reshape(tokens, comm.size * own, width).contiguous())


def attention(q: Shard, k: Shard, v: Shard, scale: float, sharding: Sharding, comm: Exchange) -> AttendedShard:
    """Attention over the whole sequence, from shards to shards: four exchanges."""
    whole = attend(to_heads(q, sharding, comm), to_heads(k, sharding, comm), to_heads(v, sharding, comm), scale, sharding)
    return to_sequence(whole, sharding, comm)
