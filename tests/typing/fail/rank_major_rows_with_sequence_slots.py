"""Rows as the collective left them, slots in sequence order: every row in another row's slot."""

from dsa_contracts import CpBatch
from dsa_contracts.dsa.aliases import DenseKvRows, KvCache, SlotMapping
from dsa_contracts.dsa.dims import Nnz, NnzGathered
from dsa_contracts.dsa.row_formats import fp8_format
from dsa_contracts.dsa.states import Fp8Row, Global, RankMajor, Rotated, Sequence
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import write_kv


def layer(
    pool: KvCache[Fp8Row],
    gathered: DenseKvRows[Global[RankMajor[Zigzag]], Fp8Row, Rotated, NnzGathered],
    loc: SlotMapping[Sequence, Nnz],
    batch: CpBatch[Zigzag],
) -> None:
    write_kv(pool, gathered, loc, fp8_format(), batch)  # refused
