"""Rows of one format, written into a pool of another."""

from dsa_contracts import CpBatch, Ten
from dsa_contracts.core.marks import I64, U8, Contiguous, Plain
from dsa_contracts.dsa.dims import NnzGathered, NumPages, PageSize, RowBytes
from dsa_contracts.dsa.row_formats import bf16_format
from dsa_contracts.dsa.states import Bf16Row, Fp8Row, Global, Packed, Pool, RankMajor, Rotated
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import write_kv


def layer(
    pool: Ten[Pool, Packed[Bf16Row, Rotated], U8, Contiguous, NumPages, PageSize, RowBytes],
    gathered: Ten[Global[RankMajor[Zigzag]], Packed[Fp8Row, Rotated], U8, Contiguous, NnzGathered, RowBytes],
    loc: Ten[Global[RankMajor[Zigzag]], Plain, I64, Contiguous, NnzGathered],
    batch: CpBatch[Zigzag],
) -> None:
    write_kv(pool, gathered, loc, bf16_format(), batch)  # refused
