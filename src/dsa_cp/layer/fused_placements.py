"""The placements whose gather goes straight into the pools of all ranks: for groups whose ranks reach each other's memory.

Each is the placement of the same name in `dsa_cp.layer.placements`, without `_write`, whose last two stages are one.
"""

from dsa_contracts import Ten
from dsa_contracts.core.marks import BF16, E4M3, U8, Contiguous
from dsa_contracts.dsa.dims import NumLocalHeads, NumPages, PageSize, QkHeadDim, RowBytes
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.states import Bf16Row, Fp8Row, Fp8Row656, Local, Packed, Pool, Rotated
from dsa_contracts.dsa.typevars import L, N
from dsa_cp.layer.inputs import LayerInputs
from dsa_cp.layer.local_rows import fused_rows, rotated_q, rotated_rows, scaled_rows
from dsa_cp.layer.placements import rank_major_loc
from dsa_cp.layer.setting import Setting


def rope_quantize_gather_write(
    inputs: LayerInputs[L, N],
    setting: Setting[L, N],
    pool: Ten[Pool, Packed[Fp8Row, Rotated], U8, Contiguous, NumPages, PageSize, RowBytes],
    row_format: RowFormat[Fp8Row, E4M3, E4M3],
) -> Ten[Local[L], Rotated, E4M3, Contiguous, N, NumLocalHeads, QkHeadDim]:
    """RoPE and e4m3 fused on local rows, then the gather into the pools."""
    ops, batch = setting.kernels, setting.batch
    q, kv = fused_rows(inputs, setting)
    ops.gather_write_kv(pool, kv, rank_major_loc(batch), row_format, batch, setting.comm)
    return q


def rope_gather_write(
    inputs: LayerInputs[L, N],
    setting: Setting[L, N],
    pool: Ten[Pool, Packed[Bf16Row, Rotated], U8, Contiguous, NumPages, PageSize, RowBytes],
    row_format: RowFormat[Bf16Row, BF16, BF16],
) -> Ten[Local[L], Rotated, BF16, Contiguous, N, NumLocalHeads, QkHeadDim]:
    """RoPE on local rows, then the gather of bf16 rows into the pools."""
    ops, batch = setting.kernels, setting.batch
    kv = rotated_rows(inputs, setting, row_format)
    ops.gather_write_kv(pool, kv, rank_major_loc(batch), row_format, batch, setting.comm)
    return rotated_q(inputs, setting)


def rope_quantize_rows_gather_write(
    inputs: LayerInputs[L, N],
    setting: Setting[L, N],
    pool: Ten[Pool, Packed[Fp8Row656, Rotated], U8, Contiguous, NumPages, PageSize, RowBytes],
    row_format: RowFormat[Fp8Row656, E4M3, BF16],
) -> Ten[Local[L], Rotated, BF16, Contiguous, N, NumLocalHeads, QkHeadDim]:
    """RoPE and `fp8_656` on local rows, then the gather of 656 bytes a row into the pools."""
    ops, batch = setting.kernels, setting.batch
    kv = scaled_rows(inputs, setting, row_format)
    ops.gather_write_kv(pool, kv, rank_major_loc(batch), row_format, batch, setting.comm)
    return rotated_q(inputs, setting)
