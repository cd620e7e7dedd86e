"""Where rows stand among the gathered ones, where a stage takes slots: both are int64 in sequence order."""

from dsa_contracts import CpBatch
from dsa_contracts.dsa.aliases import KvCache, KvRows, SlotMapping
from dsa_contracts.dsa.dims import Nnz
from dsa_contracts.dsa.row_formats import bf16_format
from dsa_contracts.dsa.states import Bf16Row, Global, Rotated, Sequence
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import write_kv


def layer(
    pool: KvCache[Bf16Row],
    kv: KvRows[Global[Sequence], Bf16Row, Rotated, Nnz],
    loc: SlotMapping[Sequence, Nnz],
    batch: CpBatch[Zigzag],
) -> None:
    write_kv(pool, kv, loc, bf16_format(), batch)
    write_kv(pool, kv, batch.restore_index, bf16_format(), batch)  # refused
