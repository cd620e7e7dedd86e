"""The implementation, in torch."""

import math

import torch
from torch import Tensor

from dsa_contracts.core.brands import brand
from dsa_contracts.core.comm import Exchange
from dsa_contracts.core.declarations import declare
from dsa_contracts.core.marks import Plain
from dsa_contracts.core.runtime.stage import stage
from examples.ring_attention import ring_contracts
from examples.ring_attention.travel import (
    Acc,
    Block,
    BlockPositions,
    Lse2,
    LseE,
    Max,
    OwnTokens,
    Partial,
    Queries,
    QueryPositions,
    Ring,
    RunningMax,
    RunningOut,
    RunningSum,
    Sent,
    Sum,
    Travelling,
)

NEVER = float("-inf")


@stage(ring_contracts.absorb)
def absorb(
    running_max: Max,
    running_sum: Sum,
    acc: Acc,
    q: Queries,
    q_positions: QueryPositions,
    k: Block,
    v: Block,
    k_positions: BlockPositions,
    scale: float,
    ring: Ring,
) -> tuple[Max, Sum, Acc]:
    """Rescale what is there to the new maximum, and add the block."""
    scores = torch.einsum("qhd,khd->qhk", q, k) * scale
    scores = scores.masked_fill((k_positions > q_positions[:, None])[:, None, :], NEVER)
    in_block = scores.amax(-1) if k.shape[0] else torch.full_like(running_max, NEVER)
    highest = torch.maximum(running_max, in_block)
    safe = highest.masked_fill(highest == NEVER, 0.0)  # a query that has seen no key: exp of minus infinity, and no NaN
    before, weights = (running_max - safe).exp(), (scores - safe[..., None]).exp()
    total = running_sum * before + weights.sum(-1)
    return brand(highest), brand(total), brand(acc * before[..., None] + torch.einsum("qhk,khd->qhd", weights, v))


@stage(ring_contracts.pass_on)
def pass_on(block: Block, ring: Ring, comm: Exchange) -> Sent:
    """Send to the next rank, take from the one before."""
    coming = (ring.owner - 1) % ring.size
    send, take = [0] * ring.size, [0] * ring.size
    send[(ring.rank + 1) % ring.size] = block.shape[0]
    take[(ring.rank - 1) % ring.size] = len(ring.positions_of(coming))
    taken = comm.all_to_all(block.flatten(1).view(torch.uint8), send, take)
    return brand(taken.view(torch.float32).view(-1, block.shape[1], block.shape[2]))


def next_block(k: Block, v: Block, ring: Ring, comm: Exchange) -> tuple[Block, Block, Ring]:
    """Return the keys and values that have come, and the ring at the next hop: here it is stated whose they are."""
    after = ring.at_hop(ring.hop + 1)
    sent = pass_on(k, ring, comm), pass_on(v, ring, comm)
    arrived_k: Block = declare(sent[0], Travelling, Plain, after, "next_block")
    arrived_v: Block = declare(sent[1], Travelling, Plain, after, "next_block")
    return arrived_k, arrived_v, after


@stage(ring_contracts.finish)
def finish(running_max: Max, running_sum: Sum, acc: Acc, ring: Ring) -> tuple[Partial, LseE]:
    """Divide; the log is to base e."""
    out = acc / running_sum.masked_fill(running_sum == 0, 1.0)[..., None]
    return brand(out), brand(running_max + running_sum.log())


@stage(ring_contracts.to_natural)
def to_natural(lse: Lse2, ring: Ring) -> LseE:
    """Multiply by ln 2."""
    return brand(lse * math.log(2))


@stage(ring_contracts.merge)
def merge(out: Partial, lse: LseE, other: Partial, other_lse: LseE, ring: Ring) -> tuple[Partial, LseE]:
    """Weigh each by its share of the denominator."""
    both = torch.logaddexp(lse, other_lse)
    safe = both.masked_fill(both == NEVER, 0.0)
    shares = [(one - safe).exp()[..., None] for one in (lse, other_lse)]
    return brand(out * shares[0] + other * shares[1]), brand(both)


def block_positions(ring: Ring) -> BlockPositions:
    """Return the positions of the block that is here."""
    found: BlockPositions = declare(
        torch.tensor(ring.positions_of(ring.owner), dtype=torch.int64), Travelling, Plain, ring, "ring"
    )
    return found


def nothing_seen(q: Queries, ring: Ring) -> tuple[Max, Sum, Acc]:
    """Return the running softmax before any block."""
    highest: Max = declare(q.new_full(q.shape[:2], NEVER), OwnTokens, RunningMax, ring, "start")
    total: Sum = declare(q.new_zeros(q.shape[:2]), OwnTokens, RunningSum, ring, "start")
    acc: Acc = declare(torch.zeros_like(q), OwnTokens, RunningOut, ring, "start")
    return highest, total, acc


def attention(q: Queries, k: Block, v: Block, scale: float, ring: Ring, comm: Exchange) -> tuple[Partial, LseE]:
    """Attention of this rank's queries over the whole sequence: a hop for each rank, two exchanges between two hops."""
    own: Tensor = torch.tensor(ring.positions_of(ring.rank), dtype=torch.int64)
    q_positions: QueryPositions = declare(own, OwnTokens, Plain, ring, "ring")
    running = nothing_seen(q, ring)
    for hop in range(ring.size):
        running = absorb(*running, q, q_positions, k, v, block_positions(ring), scale, ring)
        if hop + 1 < ring.size:
            k, v, ring = next_block(k, v, ring, comm)
    return finish(*running, ring)
