"""Reference of `rope_quantize`: float32 rotation, times the scale, one cast, into merged and packed rows."""

import torch

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, RopeStyle, brand, stage
from dsa_contracts.core.marks import E4M3
from dsa_contracts.dsa.aliases import CosSinCache, DenseKvRows, KNope, KRope, QNope, QRope, Query, TokenPositions
from dsa_contracts.dsa.states import Fp8Row, Local, Raw, Rotated
from dsa_contracts.dsa.typevars import L, N
from dsa_cp.numerics.rotation import rotate, to_e4m3


@stage(contracts.rope_quantize)
def rope_quantize(
    q_nope: QNope[L, N],
    q_rope: QRope[L, Raw, N],
    k_nope: KNope[Local[L], N],
    k_rope: KRope[Local[L], Raw, N],
    positions: TokenPositions[Local[L], N],
    cos_sin_cache: CosSinCache,
    rope_style: RopeStyle,
    quant_scale_q: float,
    quant_scale_kv: float,
    batch: CpBatch[L],
) -> tuple[Query[L, E4M3, N], DenseKvRows[Local[L], Fp8Row, Rotated, N]]:
    """See `dsa_contracts.stages.rope_quantize`."""
    rows, heads, rank = q_nope.shape
    q = torch.empty(rows, heads, rank + q_rope.shape[-1], dtype=torch.float8_e4m3fn, device=q_nope.device)
    q[..., :rank] = to_e4m3(q_nope.float() * quant_scale_q)
    q[..., rank:] = to_e4m3(rotate(q_rope, positions, cos_sin_cache, rope_style) * quant_scale_q)
    kv = torch.empty(rows, rank + k_rope.shape[-1], dtype=torch.float8_e4m3fn, device=q_nope.device)
    kv[:, :rank] = to_e4m3(k_nope.float() * quant_scale_kv)
    kv[:, rank:] = to_e4m3(rotate(k_rope, positions, cos_sin_cache, rope_style) * quant_scale_kv)
    return brand(q), brand(kv.view(torch.uint8))
