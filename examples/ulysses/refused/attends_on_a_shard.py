"""Refused by mypy, and by development mode where types are not read."""

from dsa_contracts.core.comm import Exchange
from examples.ulysses.heads import attend, to_heads
from examples.ulysses.shards import AttendedWhole, Shard, Sharding, Whole


def attends_on_a_shard(q: Shard, k: Shard, v: Shard, sharding: Sharding, comm: Exchange) -> AttendedWhole:
    """Only the queries are exchanged: keys and values are those of this rank."""
    return attend(to_heads(q, sharding, comm), k, v, 1.0, sharding)  # refused


def exchanges_twice(x: Shard, sharding: Sharding, comm: Exchange) -> Whole:
    """What holds this rank's heads already is cut by heads again."""
    return to_heads(to_heads(x, sharding, comm), sharding, comm)  # refused
