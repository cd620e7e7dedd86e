"""Ulysses: equal to attention on one rank, and refused where heads and sequence are confused."""

from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts.core.comm import Exchange
from dsa_contracts.core.declarations import declare
from dsa_contracts.core.marks import Plain
from dsa_contracts.core.modes import checking_values
from dsa_cp.comm import run_ranks
from examples.ulysses.heads import attend, attention, to_heads
from examples.ulysses.heads_come_first import heads_come_first
from examples.ulysses.shards import SequenceShard, Sharding
from tests.examples.ranks import normal, refusal

REFUSED: Any = import_module("examples.ulysses.refused.attends_on_a_shard")
HEADS, WIDTH = 4, 3
BOUND = "seq=4, bound by sequence; heads_local=4, bound by sequence; head_dim=3, bound by to_heads.x"


def shard_of(x: Tensor, sharding: Sharding) -> Any:
    start = sum(sharding.lens[: sharding.rank])
    own = x[start : start + sharding.lens[sharding.rank]].clone()
    return declare(own, SequenceShard, Plain, sharding, "test")


def reference(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention in float64, token by token."""
    q, k, v = q.double(), k.double(), v.double()
    out = torch.zeros_like(v)
    for token in range(len(q)):
        for head in range(q.shape[1]):
            weights = (k[: token + 1, head] @ q[token, head] * 0.5).softmax(0)
            out[token, head] = weights @ v[: token + 1, head]
    return out


@pytest.mark.parametrize("lens", [[5], [3, 4], [1, 0, 4, 2], [0, 0], [2, 2]])
def test_shards_come_back_as_attention_over_the_whole_sequence(lens: list[int]) -> None:
    q, k, v = (normal(sum(lens), HEADS, WIDTH, seed=seed) for seed in range(3))

    def rank(comm: Exchange) -> Tensor:
        sharding = Sharding(lens, HEADS, comm.rank)
        shards = shard_of(q, sharding), shard_of(k, sharding), shard_of(v, sharding)
        with checking_values():
            return attention(*shards, 0.5, sharding, comm)

    out = torch.cat(run_ranks(len(lens), rank))
    torch.testing.assert_close(out.double(), reference(q, k, v), atol=1e-6, rtol=1e-5)


def on_one_rank(body: Any, *lens: int) -> str:
    """The refusal of a body on the only rank of a group, where a shard and a whole have one shape."""

    def rank(comm: Exchange) -> None:
        sharding = Sharding(lens or (4,), HEADS, 0)
        body([shard_of(normal(4, HEADS, WIDTH, seed=seed), sharding) for seed in range(3)], sharding, comm)

    return refusal(run_ranks, 1, rank)


def test_attention_on_a_shard_of_the_sequence_is_refused() -> None:
    assert on_one_rank(lambda shards, *rest: REFUSED.attends_on_a_shard(*shards, *rest)) == "\n".join(
        [
            "StageInputError DSA106: attend: k holds SequenceShard rows, not HeadShard",
            f"  expected  f32[seq heads_local head_dim] Contiguous, HeadShard, Plain; {BOUND}",
            "  got       f32[4, 4, 3] strides (12, 3, 1) cpu",
            "  because   its brand: SequenceShard, Plain, from test",
            "  where     rank 0 of 1",
            "  contract  examples/ulysses/head_exchange.py",
            "  try       to_heads first: a shard does not hold the keys of other ranks",
        ]
    )


def test_a_second_exchange_is_refused() -> None:
    assert on_one_rank(lambda shards, *rest: REFUSED.exchanges_twice(shards[0], *rest)).splitlines()[0] == (
        "StageInputError DSA106: to_heads: x holds HeadShard rows, not SequenceShard"
    )


def test_heads_before_tokens_are_refused() -> None:
    def rank(comm: Exchange) -> None:
        sharding = Sharding([3], HEADS, 0)
        heads_come_first(shard_of(normal(3, HEADS, WIDTH, seed=0), sharding), sharding, comm)

    assert refusal(run_ranks, 1, rank).splitlines()[0] == (
        "StageInputError DSA102: to_heads: x has 4 rows, seq_local is 3, bound by sequence"
    )


def test_heads_before_tokens_are_refused_in_values_mode_where_the_sizes_agree() -> None:
    def body(shards: list[Any], *rest: Any) -> None:
        with checking_values():
            heads_come_first(shards[0], *rest)

    assert on_one_rank(body).splitlines()[0] == "StageInputError DSA125: to_heads: nothing states which rows x holds"


def test_heads_that_cannot_be_divided_are_refused_by_an_own_code() -> None:
    def rank(comm: Exchange) -> None:
        sharding = Sharding([2, 1], 3, comm.rank)
        to_heads(shard_of(normal(3, 3, WIDTH, seed=0), sharding), sharding, comm)

    assert refusal(run_ranks, 2, rank) == "\n".join(
        [
            "StageInputError ULY101: to_heads: 3 heads on 2 ranks",
            "  expected  heads_are_divided: each rank has equally many heads",
            "  where     rank 0 of 2",
            "  contract  examples/ulysses/head_exchange.py",
        ]
    )


def test_a_shard_of_another_sequence_is_refused() -> None:
    def rank(comm: Exchange) -> None:
        one, other = Sharding([4], HEADS, 0), Sharding([4], HEADS, 0)
        whole = to_heads(shard_of(normal(4, HEADS, WIDTH, seed=0), one), one, comm)
        attend(whole, whole, whole, 1.0, one)
        attend(whole, whole, whole, 1.0, other)

    assert refusal(run_ranks, 1, rank).splitlines()[0] == "StageInputError DSA108: attend: q was made for another sequence"
