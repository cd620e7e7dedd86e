"""Slots of 32 bits where a slot index has 64."""

from dsa_contracts import CpBatch, Ten
from dsa_contracts.core.marks import I32, U8, Contiguous, Plain
from dsa_contracts.dsa.dims import Nnz, NumPages, PageSize, RowBytes
from dsa_contracts.dsa.row_formats import fp8_format
from dsa_contracts.dsa.states import Fp8Row, Global, Packed, Pool, Rotated, Sequence
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import write_kv


def layer(
    pool: Ten[Pool, Packed[Fp8Row, Rotated], U8, Contiguous, NumPages, PageSize, RowBytes],
    kv: Ten[Global[Sequence], Packed[Fp8Row, Rotated], U8, Contiguous, Nnz, RowBytes],
    loc: Ten[Global[Sequence], Plain, I32, Contiguous, Nnz],
    batch: CpBatch[Zigzag],
) -> None:
    write_kv(pool, kv, loc, fp8_format(), batch)  # refused
