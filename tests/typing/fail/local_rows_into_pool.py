"""One rank's rows, written as if they were all: the gather was forgotten."""

from dsa_contracts import CpBatch
from dsa_contracts.dsa.aliases import DenseKvRows, KvCache, SlotMapping
from dsa_contracts.dsa.dims import Nnz, NnzLocal
from dsa_contracts.dsa.row_formats import fp8_format
from dsa_contracts.dsa.states import Fp8Row, Local, Rotated, Sequence
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import write_kv


def layer(
    pool: KvCache[Fp8Row],
    kv: DenseKvRows[Local[Zigzag], Fp8Row, Rotated, NnzLocal],
    loc: SlotMapping[Sequence, Nnz],
    batch: CpBatch[Zigzag],
) -> None:
    write_kv(pool, kv, loc, fp8_format(), batch)  # refused
