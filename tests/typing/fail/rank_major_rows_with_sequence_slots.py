"""Rows as the collective left them, slots in sequence order: every row in another row's slot."""

from dsa_contracts import CpBatch, Ten
from dsa_contracts.core.marks import I64, U8, Contiguous, Plain
from dsa_contracts.dsa.dims import Nnz, NnzGathered, NumPages, PageSize, RowBytes
from dsa_contracts.dsa.row_formats import fp8_format
from dsa_contracts.dsa.states import Fp8Row, Global, Packed, Pool, RankMajor, Rotated, Sequence
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import write_kv


def layer(
    pool: Ten[Pool, Packed[Fp8Row, Rotated], U8, Contiguous, NumPages, PageSize, RowBytes],
    gathered: Ten[Global[RankMajor[Zigzag]], Packed[Fp8Row, Rotated], U8, Contiguous, NnzGathered, RowBytes],
    loc: Ten[Global[Sequence], Plain, I64, Contiguous, Nnz],
    batch: CpBatch[Zigzag],
) -> None:
    write_kv(pool, gathered, loc, fp8_format(), batch)  # refused
