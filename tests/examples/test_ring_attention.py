"""Ring attention: equal to attention on one rank, and refused with a stale or wrong block, another base, or uneven work."""

import math
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
from examples.ring_attention.ring import (
    absorb,
    attention,
    block_positions,
    merge,
    next_block,
    nothing_seen,
    to_natural,
)
from examples.ring_attention.stale_block import stale_block
from examples.ring_attention.travel import BinaryLse, Out, OwnTokens, Ring, Travelling, balanced
from tests.examples.ranks import normal, refusal

REFUSED: Any = import_module("examples.ring_attention.refused.merges_other_bases")
HEADS, WIDTH, SCALE = 2, 3, 0.5


def inputs(length: int) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (normal(length, HEADS, WIDTH, seed=seed) for seed in range(3))
    return q, k, v


def shard(ring: Ring) -> tuple[Any, Any, Any]:
    """Queries, keys and values of a rank, at hop 0."""
    own = ring.positions_of(ring.rank)
    length = sum(stop - start for spans in ring.spans for start, stop in spans)
    q, k, v = (x[own].clone() for x in inputs(length))
    for x, mark in ((q, OwnTokens), (k, Travelling), (v, Travelling)):
        declare(x, mark, Plain, ring, "test")
    return q, k, v


def reference(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Causal attention and its log to base e in float64, token by token."""
    q, k, v = q.double(), k.double(), v.double()
    out, lse = torch.zeros_like(v), torch.zeros(q.shape[:2], dtype=torch.float64)
    for token in range(len(q)):
        for head in range(HEADS):
            scores = k[: token + 1, head] @ q[token, head] * SCALE
            out[token, head] = scores.softmax(0) @ v[: token + 1, head]
            lse[token, head] = scores.logsumexp(0)
    return out, lse


@pytest.mark.parametrize(("length", "size"), [(5, 1), (8, 2), (7, 2), (13, 3), (16, 4), (3, 4), (0, 2)])
def test_every_query_has_attended_to_all_keys_before_it(length: int, size: int) -> None:
    def rank(comm: Exchange) -> tuple[list[int], Tensor, Tensor]:
        ring = Ring(balanced(length, size), comm.rank)
        with checking_values():
            return ring.positions_of(comm.rank), *attention(*shard(ring), SCALE, ring, comm)

    want, want_lse = reference(*inputs(length))
    seen: list[int] = []
    for positions, out, lse in run_ranks(size, rank):
        torch.testing.assert_close(out.double(), want[positions], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(lse.double(), want_lse[positions], atol=1e-6, rtol=1e-5)
        seen += positions
    assert sorted(seen) == list(range(length))


def test_the_halves_of_a_balanced_cut_give_every_rank_the_same_work() -> None:
    assert balanced(8, 2) == (((0, 2), (6, 8)), ((2, 4), (4, 6)))
    ring = Ring(balanced(8, 2), 0)
    assert [ring.pairs_of(rank) for rank in range(2)] == [18, 18]
    assert balanced(3, 2) == (((0, 1), (3, 3)), ((1, 2), (2, 3)))


def test_a_sequence_that_is_cut_into_one_piece_a_rank_is_refused() -> None:
    def rank(comm: Exchange) -> None:
        ring = Ring([((0, 32),), ((32, 64),)], comm.rank)
        attention(*shard(ring), SCALE, ring, comm)

    assert refusal(run_ranks, 2, rank).splitlines() == [
        "StageInputError RING102: absorb: ranks compute 528, 1552 pairs of a query and a key",
        "  expected  ranks_work_alike: each rank computes about as many pairs as any other",
        "  where     rank 0 of 2, hop 0",
        "  contract  examples/ring_attention/ring_contracts.py",
        "  try       cut the sequence with `balanced`",
    ]


def started(ring: Ring) -> tuple[tuple[Any, Any, Any], Any, Any, Any, Any]:
    """A rank's running softmax, queries, their positions, keys and values, at hop 0."""
    q, k, v = shard(ring)
    own = torch.tensor(ring.positions_of(ring.rank))
    q_positions: Any = declare(own, OwnTokens, Plain, ring, "test")
    running: Any = nothing_seen(q, ring)
    return running, q, q_positions, k, v


def test_the_block_of_the_hop_before_is_refused() -> None:
    def rank(comm: Exchange) -> None:
        ring = Ring(balanced(8, 2), comm.rank)
        stale_block(*started(ring), ring, comm)

    bound = "ring_heads=2, bound by pass_on.block; ring_head_dim=3, bound by pass_on.block"
    assert refusal(run_ranks, 2, rank).splitlines() == [
        "StageInputError DSA106: absorb: k is laid out as the block of rank 0, the ring as the block of rank 1",
        f"  expected  f32[block_tokens ring_heads ring_head_dim] Contiguous, Travelling, Plain; {bound}",
        "  got       f32[4, 2, 3] strides (6, 3, 1) cpu",
        "  because   its brand: Travelling, Plain, the block of rank 0, from test",
        "  where     rank 0 of 2, hop 1",
        "  contract  examples/ring_attention/ring_contracts.py",
        "  try       take the block that `next_block` returned",
    ]


def test_positions_of_another_block_are_refused_in_values_mode() -> None:
    """A ring that runs the other way round: the positions of each block are stated as those of the wrong rank."""

    def rank(comm: Exchange) -> None:
        ring = Ring(balanced(12, 3), comm.rank)
        running, q, q_positions, k, v = started(ring)
        k, v, ring = next_block(k, v, ring, comm)
        backwards = torch.tensor(ring.positions_of((ring.rank + 1) % 3))
        positions: Any = declare(backwards, Travelling, Plain, ring, "test")
        with checking_values():
            absorb(*running, q, q_positions, k, v, block_positions(ring), SCALE, ring)
            absorb(*running, q, q_positions, k, v, positions, SCALE, ring)

    assert refusal(run_ranks, 3, rank).splitlines()[0] == (
        "StageInputError RING101: absorb: k_positions are those of rank 1, not those of rank 2"
    )


def cached(ring: Ring, rows: int) -> tuple[Any, Any]:
    """Output and log to base 2 over some cached keys, as a kernel of FlashInfer returns them."""
    q = shard(ring)[0]
    keys, values = normal(rows, HEADS, WIDTH, seed=7), normal(rows, HEADS, WIDTH, seed=8)
    scores = torch.einsum("qhd,khd->qhk", q, keys) * SCALE
    out = torch.einsum("qhk,khd->qhd", scores.softmax(-1), values).contiguous()
    lse = scores.logsumexp(-1) / math.log(2)
    return declare(out, OwnTokens, Out, ring, "cached"), declare(lse, OwnTokens, BinaryLse, ring, "cached")


def test_a_partial_result_with_a_log_to_base_two_is_merged_once_it_is_natural() -> None:
    def rank(comm: Exchange) -> tuple[Tensor, Tensor]:
        ring = Ring(balanced(4, 1), 0)
        out, lse = attention(*shard(ring), SCALE, ring, comm)
        other, lse2 = cached(ring, 5)
        return merge(out, lse, other, to_natural(lse2, ring), ring)

    out, lse = run_ranks(1, rank)[0]
    q, k, v = (x.double() for x in inputs(4))
    keys = torch.cat([normal(5, HEADS, WIDTH, seed=7).double(), k])
    values = torch.cat([normal(5, HEADS, WIDTH, seed=8).double(), v])
    for token in range(4):
        for head in range(HEADS):
            scores = keys[: 5 + token + 1, head] @ q[token, head] * SCALE
            want = scores.softmax(0) @ values[: 5 + token + 1, head]
            torch.testing.assert_close(out[token, head].double(), want, atol=1e-6, rtol=1e-5)
            torch.testing.assert_close(lse[token, head].double(), scores.logsumexp(0), atol=1e-6, rtol=1e-5)


def test_logs_of_two_bases_are_not_merged() -> None:
    def rank(comm: Exchange) -> None:
        ring = Ring(balanced(4, 1), 0)
        REFUSED.merges_other_bases(*attention(*shard(ring), SCALE, ring, comm), *cached(ring, 5), ring)

    bound = "query_tokens=4, bound by ring; ring_heads=2, bound by absorb.running_max"
    assert refusal(run_ranks, 1, rank).splitlines() == [
        "StageInputError DSA107: merge: other_lse is BinaryLse, not NaturalLse",
        f"  expected  f32[query_tokens ring_heads] Contiguous, OwnTokens, NaturalLse; {bound}",
        "  got       f32[4, 2] strides (2, 1) cpu",
        "  because   its brand: OwnTokens, BinaryLse, from cached",
        "  where     rank 0 of 1, hop 0",
        "  contract  examples/ring_attention/ring_contracts.py",
        "  try       to_natural first: FlashInfer's log is to base 2",
    ]
