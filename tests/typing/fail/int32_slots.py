"""Slots of 32 bits where a slot index has 64."""

from dsa_contracts import CpBatch, Ten
from dsa_contracts.core.marks import I32, Contiguous
from dsa_contracts.dsa.aliases import DenseKvRows, KvCache
from dsa_contracts.dsa.dims import Nnz
from dsa_contracts.dsa.row_formats import fp8_format
from dsa_contracts.dsa.states import Fp8Row, Global, Rotated, Sequence, TokenSlots
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import write_kv


def layer(
    pool: KvCache[Fp8Row],
    kv: DenseKvRows[Global[Sequence], Fp8Row, Rotated, Nnz],
    loc: Ten[Global[Sequence], TokenSlots, I32, Contiguous, Nnz],
    batch: CpBatch[Zigzag],
) -> None:
    write_kv(pool, kv, loc, fp8_format(), batch)  # refused
