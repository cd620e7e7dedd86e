"""The second legal order: the gather of raw rows, then RoPE with the positions of all ranks, for any layout."""

from dsa_contracts import Comm, CpBatch, RopeStyle, Ten
from dsa_contracts.core.marks import BF16, F32, I64, U8, Contiguous, Plain, UnitLast
from dsa_contracts.dsa.dims import (
    CosSinWidth,
    KvLoraRank,
    MaxPosition,
    Nnz,
    NnzLocal,
    NumPages,
    PageSize,
    QkRopeHeadDim,
    RowBytes,
)
from dsa_contracts.dsa.row_formats import bf16_format
from dsa_contracts.dsa.states import Bf16Row, Global, Local, Packed, PackedRowStride, Pool, Raw, Rotated, Sequence, Table
from dsa_contracts.dsa.typevars import L
from dsa_cp.stages import all_gather_kv, apply_rope, pack_kv, restore_order, split_kv, write_kv


def layer(
    k_nope: Ten[Local[L], Plain, BF16, UnitLast, NnzLocal, KvLoraRank],
    k_rope: Ten[Local[L], Raw, BF16, UnitLast, NnzLocal, QkRopeHeadDim],
    cos_sin_cache: Ten[Table, Plain, F32, Contiguous, MaxPosition, CosSinWidth],
    pool: Ten[Pool, Packed[Bf16Row, Rotated], U8, Contiguous, NumPages, PageSize, RowBytes],
    loc: Ten[Global[Sequence], Plain, I64, Contiguous, Nnz],
    batch: CpBatch[L],
    comm: Comm,
) -> None:
    raw = pack_kv(k_nope, k_rope, bf16_format(), batch)
    restored = restore_order(all_gather_kv(raw, bf16_format(), batch, comm), batch)
    latent, rope = split_kv(restored, bf16_format(), PackedRowStride, batch)
    rotated = apply_rope(rope, batch.positions, cos_sin_cache, 64, RopeStyle.NEOX, batch)
    write_kv(pool, pack_kv(latent, rotated, bf16_format(), batch), loc, bf16_format(), batch)
