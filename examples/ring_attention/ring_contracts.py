"""The contracts: take a block in, pass it on, finish, merge partial results."""

from dsa_contracts.core.comm import Exchange
from dsa_contracts.core.contract import contract
from dsa_contracts.core.invariant import Call, Invariant
from examples.ring_attention.travel import (
    Acc,
    Block,
    BlockPositions,
    Lse2,
    LseE,
    Max,
    Partial,
    Queries,
    QueryPositions,
    Ring,
    Sent,
    Sum,
)


def positions_are_of_the_block() -> Invariant:
    """The block that is here is that of the rank whose turn it is."""

    def check(call: Call) -> str | None:
        ring, got = call.value("ring", Ring), call.tensor("k_positions").tolist()
        want = ring.positions_of(ring.owner)
        if got == want:
            return None
        whose = next((f"those of rank {rank}" for rank in range(ring.size) if ring.positions_of(rank) == got), f"{got}")
        return f"k_positions are {whose}, not those of rank {ring.owner}"

    statement = "positions are those of the block's owner"
    return Invariant("positions_are_of_the_block", "RING101", "k_positions", statement, True, check)


def ranks_work_alike() -> Invariant:
    """No rank has more than two queries' worth of pairs more than another."""

    def check(call: Call) -> str | None:
        ring = call.value("ring", Ring)
        pairs = [ring.pairs_of(rank) for rank in range(ring.size)]
        length = sum(stop - start for spans in ring.spans for start, stop in spans)
        if max(pairs) - min(pairs) <= 2 * length:
            return None
        return f"ranks compute {', '.join(map(str, pairs))} pairs of a query and a key"

    statement = "each rank computes about as many pairs as any other"
    return Invariant("ranks_work_alike", "RING102", "q", statement, False, check)


def a_whole_block_has_come() -> Invariant:
    """As many tokens have come as the block of the next hop has."""

    def check(call: Call) -> str | None:
        ring, got = call.value("ring", Ring), call.tensor("sent").shape[0]
        coming = (ring.owner - 1) % ring.size
        want = len(ring.positions_of(coming))
        return None if got == want else f"{got} tokens have come, the block of rank {coming} has {want}"

    return Invariant("a_whole_block_has_come", "RING103", "sent", "sent is the block of the next hop", False, check)


@contract(
    returns=("new_max", "new_sum", "new_acc"),
    requires=(ranks_work_alike(), positions_are_of_the_block()),
    advice=(("DSA106", "take the block that `next_block` returned"), ("RING102", "cut the sequence with `balanced`")),
)
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
    """The running softmax of each query has seen the block that is here, as far as it is not after the query."""
    raise NotImplementedError


@contract(returns=("sent",), ensures=(a_whole_block_has_come(),))
def pass_on(block: Block, ring: Ring, comm: Exchange) -> Sent:
    """The block of the rank before has come, and this rank's has gone to the next.

    Sync: one collective.
    """
    raise NotImplementedError


@contract(returns=("out", "lse"))
def finish(running_max: Max, running_sum: Sum, acc: Acc, ring: Ring) -> tuple[Partial, LseE]:
    """Outputs are divided; a query that has seen no key has zeros, and minus infinity."""
    raise NotImplementedError


@contract(returns=("natural",))
def to_natural(lse: Lse2, ring: Ring) -> LseE:
    """A log to base 2 has become one to base e."""
    raise NotImplementedError


@contract(returns=("merged", "merged_lse"), advice=(("DSA107", "to_natural first: FlashInfer's log is to base 2"),))
def merge(out: Partial, lse: LseE, other: Partial, other_lse: LseE, ring: Ring) -> tuple[Partial, LseE]:
    """Outputs over two sets of keys are one over both."""
    raise NotImplementedError
