"""The rows that were gathered, where a stage takes their slots: both are int64 in rank-major order."""

from dsa_contracts import Comm, CpBatch
from dsa_contracts.dsa.aliases import KvCache, KvRows, SlotMapping
from dsa_contracts.dsa.dims import NnzGathered, NnzLocal
from dsa_contracts.dsa.row_formats import bf16_format
from dsa_contracts.dsa.states import Bf16Row, Local, RankMajor, Rotated
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import gather_write_kv


def layer(
    pool: KvCache[Bf16Row],
    kv: KvRows[Local[Zigzag], Bf16Row, Rotated, NnzLocal],
    loc: SlotMapping[RankMajor[Zigzag], NnzGathered],
    comm: Comm,
    batch: CpBatch[Zigzag],
) -> None:
    gather_write_kv(pool, kv, loc, bf16_format(), batch, comm)
    gather_write_kv(pool, kv, batch.gathered_rows, bf16_format(), batch, comm)  # refused
