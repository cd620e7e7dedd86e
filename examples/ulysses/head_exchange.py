"""The contracts: into heads, attention over the whole sequence, back into the sequence."""

from dsa_contracts.core.comm import Exchange
from dsa_contracts.core.contract import contract
from dsa_contracts.core.invariant import Call, Invariant
from examples.ulysses.shards import AttendedShard, AttendedWhole, Shard, Sharding, Whole


def heads_are_divided() -> Invariant:
    """Every rank computes as many heads as every other."""

    def check(call: Call) -> str | None:
        sharding = call.value("sharding", Sharding)
        ranks = len(sharding.lens)
        return f"{sharding.heads} heads on {ranks} ranks" if sharding.heads % ranks else None

    return Invariant("heads_are_divided", "ULY101", "x", "each rank has equally many heads", False, check)


@contract(returns=("whole",), requires=(heads_are_divided(),), advice=(("DSA106", "exchange once, before attention"),))
def to_heads(x: Shard, sharding: Sharding, comm: Exchange) -> Whole:
    """Every rank has all tokens of its heads.

    Sync: one collective.
    """
    raise NotImplementedError


@contract(returns=("out",), advice=(("DSA106", "to_heads first: a shard does not hold the keys of other ranks"),))
def attend(q: Whole, k: Whole, v: Whole, scale: float, sharding: Sharding) -> AttendedWhole:
    """Each token has attended to itself and all tokens before it, for this rank's heads."""
    raise NotImplementedError


@contract(returns=("shard",), requires=(heads_are_divided(),))
def to_sequence(x: AttendedWhole, sharding: Sharding, comm: Exchange) -> AttendedShard:
    """Every rank has all heads of its tokens again.

    Sync: one collective.
    """
    raise NotImplementedError
