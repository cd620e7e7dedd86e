"""The first legal order: RoPE on this rank's rows with this rank's positions, then the gather."""

from dsa_contracts import Comm, CpBatch, RopeStyle, Ten
from dsa_contracts.core.marks import BF16, F32, I64, U8, Contiguous, Plain, UnitLast
from dsa_contracts.dsa.dims import (
    CosSinWidth,
    KvLoraRank,
    MaxPosition,
    NnzGathered,
    NnzLocal,
    NumPages,
    PageSize,
    QkRopeHeadDim,
    RowBytes,
)
from dsa_contracts.dsa.row_formats import bf16_format
from dsa_contracts.dsa.states import Bf16Row, Global, Local, Packed, Pool, RankMajor, Raw, Rotated, Table
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import all_gather_kv, apply_rope, pack_kv, rebuild_positions, write_kv


def layer(
    k_nope: Ten[Local[Zigzag], Plain, BF16, UnitLast, NnzLocal, KvLoraRank],
    k_rope: Ten[Local[Zigzag], Raw, BF16, UnitLast, NnzLocal, QkRopeHeadDim],
    cos_sin_cache: Ten[Table, Plain, F32, Contiguous, MaxPosition, CosSinWidth],
    pool: Ten[Pool, Packed[Bf16Row, Rotated], U8, Contiguous, NumPages, PageSize, RowBytes],
    loc: Ten[Global[RankMajor[Zigzag]], Plain, I64, Contiguous, NnzGathered],
    batch: CpBatch[Zigzag],
    comm: Comm,
) -> None:
    positions = rebuild_positions(batch.positions, batch.local_rows, batch)
    rotated = apply_rope(k_rope, positions, cos_sin_cache, 64, RopeStyle.NEOX, batch)
    kv = pack_kv(k_nope, rotated, bf16_format(), batch)
    gathered = all_gather_kv(kv, bf16_format(), batch, comm)
    write_kv(pool, gathered, loc, bf16_format(), batch)
