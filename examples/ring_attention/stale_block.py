"""Passes mypy, since a block is a block; development mode knows of which hop it is."""

from dsa_contracts.core.comm import Exchange
from examples.ring_attention.ring import absorb, block_positions, next_block
from examples.ring_attention.travel import Acc, Block, Max, Queries, QueryPositions, Ring, Sum


def stale_block(
    running: tuple[Max, Sum, Acc], q: Queries, q_positions: QueryPositions, k: Block, v: Block, ring: Ring, comm: Exchange
) -> tuple[Max, Sum, Acc]:
    """The keys that have come are not waited for: those of the hop before are attended to once more."""
    _, v, ring = next_block(k, v, ring, comm)
    return absorb(*running, q, q_positions, k, v, block_positions(ring), 1.0, ring)
