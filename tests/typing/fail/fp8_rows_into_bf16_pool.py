"""Rows of one format, written into a pool of another."""

from dsa_contracts import CpBatch
from dsa_contracts.dsa.aliases import DenseKvRows, KvCache, SlotMapping
from dsa_contracts.dsa.dims import NnzGathered
from dsa_contracts.dsa.row_formats import bf16_format
from dsa_contracts.dsa.states import Bf16Row, Fp8Row, Global, RankMajor, Rotated
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import write_kv


def layer(
    pool: KvCache[Bf16Row],
    gathered: DenseKvRows[Global[RankMajor[Zigzag]], Fp8Row, Rotated, NnzGathered],
    loc: SlotMapping[RankMajor[Zigzag], NnzGathered],
    batch: CpBatch[Zigzag],
) -> None:
    write_kv(pool, gathered, loc, bf16_format(), batch)  # refused
