"""The order since sgl-project/sglang#29161, on rows with the engine's padding and on rows without."""

from dsa_contracts import Comm, CpBatch, RopeStyle
from dsa_contracts.core.marks import E4M3
from dsa_contracts.dsa.aliases import CosSinCache, DenseKvRows, KNope, KRope, QNope, QRope, Query
from dsa_contracts.dsa.dims import NnzGathered, NnzLocal, NnzPadded
from dsa_contracts.dsa.row_formats import fp8_format
from dsa_contracts.dsa.states import Fp8Row, Global, Local, RankMajor, Raw, Rotated
from dsa_contracts.dsa.typevars import N
from dsa_cp.layer.local_batch import LocalBatch, local_batch, padded_local_batch
from dsa_cp.layouts import Interleave
from dsa_cp.stages import all_gather_kv, rope_quantize

Gathered = DenseKvRows[Global[RankMajor[Interleave]], Fp8Row, Rotated, NnzGathered]


def layer(
    q_nope: QNope[Interleave, N],
    q_rope: QRope[Interleave, Raw, N],
    k_nope: KNope[Local[Interleave], N],
    k_rope: KRope[Local[Interleave], Raw, N],
    cos_sin_cache: CosSinCache,
    local: LocalBatch[Interleave, N],
    batch: CpBatch[Interleave],
    comm: Comm,
) -> tuple[Query[Interleave, E4M3, N], Gathered]:
    style = RopeStyle.INTERLEAVED
    q, kv = rope_quantize(q_nope, q_rope, k_nope, k_rope, local.positions, cos_sin_cache, style, 1.0, 1.0, batch)
    return q, all_gather_kv(kv, fp8_format(), batch, comm)


def padded_and_not(batch: CpBatch[Interleave]) -> tuple[LocalBatch[Interleave, NnzPadded], LocalBatch[Interleave, NnzLocal]]:
    return padded_local_batch(batch), local_batch(batch)
