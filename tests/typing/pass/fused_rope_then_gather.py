"""The order since sgl-project/sglang#29161, on rows with the engine's padding and on rows without."""

from dsa_contracts import Comm, CpBatch, RopeStyle, Ten
from dsa_contracts.core.marks import BF16, E4M3, F32, U8, Contiguous, Plain, UnitLast
from dsa_contracts.dsa.dims import (
    CosSinWidth,
    KvLoraRank,
    MaxPosition,
    NnzGathered,
    NnzLocal,
    NnzPadded,
    NumLocalHeads,
    QkHeadDim,
    QkRopeHeadDim,
    RowBytes,
)
from dsa_contracts.dsa.row_formats import fp8_format
from dsa_contracts.dsa.states import Fp8Row, Global, Local, Packed, RankMajor, Raw, Rotated, Table
from dsa_contracts.dsa.typevars import N
from dsa_cp.layer.local_batch import LocalBatch, local_batch, padded_local_batch
from dsa_cp.layouts import Interleave
from dsa_cp.stages import all_gather_kv, rope_quantize

Gathered = Ten[Global[RankMajor[Interleave]], Packed[Fp8Row, Rotated], U8, Contiguous, NnzGathered, RowBytes]


def layer(
    q_nope: Ten[Local[Interleave], Plain, BF16, UnitLast, N, NumLocalHeads, KvLoraRank],
    q_rope: Ten[Local[Interleave], Raw, BF16, UnitLast, N, NumLocalHeads, QkRopeHeadDim],
    k_nope: Ten[Local[Interleave], Plain, BF16, UnitLast, N, KvLoraRank],
    k_rope: Ten[Local[Interleave], Raw, BF16, UnitLast, N, QkRopeHeadDim],
    cos_sin_cache: Ten[Table, Plain, F32, Contiguous, MaxPosition, CosSinWidth],
    local: LocalBatch[Interleave, N],
    batch: CpBatch[Interleave],
    comm: Comm,
) -> tuple[Ten[Local[Interleave], Rotated, E4M3, Contiguous, N, NumLocalHeads, QkHeadDim], Gathered]:
    style = RopeStyle.INTERLEAVED
    q, kv = rope_quantize(q_nope, q_rope, k_nope, k_rope, local.positions, cos_sin_cache, style, 1.0, 1.0, batch)
    return q, all_gather_kv(kv, fp8_format(), batch, comm)


def padded_and_not(batch: CpBatch[Interleave]) -> tuple[LocalBatch[Interleave, NnzPadded], LocalBatch[Interleave, NnzLocal]]:
    return padded_local_batch(batch), local_batch(batch)
