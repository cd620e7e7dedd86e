"""The order of sglang before sgl-project/sglang#29161: K is gathered, then the fused stage gets this rank's positions."""

from dsa_contracts import Comm, CpBatch, RopeStyle
from dsa_contracts.dsa.aliases import CosSinCache, KNope, KRope, QNope, QRope, TokenPositions
from dsa_contracts.dsa.dims import NnzLocal
from dsa_contracts.dsa.row_formats import bf16_format
from dsa_contracts.dsa.states import Local, PackedRowStride, Raw
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import all_gather_kv, pack_kv, restore_order, rope_quantize, split_kv


def layer(
    q_nope: QNope[Zigzag, NnzLocal],
    q_rope: QRope[Zigzag, Raw, NnzLocal],
    k_nope: KNope[Local[Zigzag], NnzLocal],
    k_rope: KRope[Local[Zigzag], Raw, NnzLocal],
    positions: TokenPositions[Local[Zigzag], NnzLocal],
    cos_sin_cache: CosSinCache,
    batch: CpBatch[Zigzag],
    comm: Comm,
) -> None:
    kv = pack_kv(k_nope, k_rope, bf16_format(), batch)
    restored = restore_order(all_gather_kv(kv, bf16_format(), batch, comm), batch)
    k_nope_of_all, k_rope_of_all = split_kv(restored, bf16_format(), PackedRowStride, batch)
    rope_quantize(  # refused
        q_nope,
        q_rope,
        k_nope_of_all,  # refused
        k_rope_of_all,  # refused
        positions,
        cos_sin_cache,
        RopeStyle.NEOX,
        1.0,
        1.0,
        batch,
    )
