"""Reference of `rope_quantize`: float32 rotation, times the scale, one cast, into merged and packed rows."""

import torch

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, RopeStyle, Ten, brand, stage
from dsa_contracts.core.marks import BF16, E4M3, F32, I64, U8, Contiguous, Plain, UnitLast
from dsa_contracts.dsa.dims import CosSinWidth, KvLoraRank, MaxPosition, NumLocalHeads, QkHeadDim, QkRopeHeadDim, RowBytes
from dsa_contracts.dsa.states import Fp8Row, Local, Packed, Raw, Rotated, Table
from dsa_contracts.dsa.typevars import L, N
from dsa_cp.numerics.rotation import rotate, to_e4m3


@stage(contracts.rope_quantize)
def rope_quantize(
    q_nope: Ten[Local[L], Plain, BF16, UnitLast, N, NumLocalHeads, KvLoraRank],
    q_rope: Ten[Local[L], Raw, BF16, UnitLast, N, NumLocalHeads, QkRopeHeadDim],
    k_nope: Ten[Local[L], Plain, BF16, UnitLast, N, KvLoraRank],
    k_rope: Ten[Local[L], Raw, BF16, UnitLast, N, QkRopeHeadDim],
    positions: Ten[Local[L], Plain, I64, Contiguous, N],
    cos_sin_cache: Ten[Table, Plain, F32, Contiguous, MaxPosition, CosSinWidth],
    rope_style: RopeStyle,
    quant_scale_q: float,
    quant_scale_kv: float,
    batch: CpBatch[L],
) -> tuple[
    Ten[Local[L], Rotated, E4M3, Contiguous, N, NumLocalHeads, QkHeadDim],
    Ten[Local[L], Packed[Fp8Row, Rotated], U8, Contiguous, N, RowBytes],
]:
    """See `dsa_contracts.stages.rope_quantize`."""
    rows, heads, rank = q_nope.shape
    q = torch.empty(rows, heads, rank + q_rope.shape[-1], dtype=torch.float8_e4m3fn, device=q_nope.device)
    q[..., :rank] = to_e4m3(q_nope.float() * quant_scale_q)
    q[..., rank:] = to_e4m3(rotate(q_rope, positions, cos_sin_cache, rope_style) * quant_scale_q)
    kv = torch.empty(rows, rank + k_rope.shape[-1], dtype=torch.float8_e4m3fn, device=q_nope.device)
    kv[:, :rank] = to_e4m3(k_nope.float() * quant_scale_kv)
    kv[:, rank:] = to_e4m3(rotate(k_rope, positions, cos_sin_cache, rope_style) * quant_scale_kv)
    return brand(q), brand(kv.view(torch.uint8))
