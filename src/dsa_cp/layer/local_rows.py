"""What a rank makes of its own rows before the gather: each placement starts with one of these."""

from dsa_contracts.core.marks import BF16, E4M3
from dsa_contracts.dsa.aliases import DenseKvRows, Query, RotatedRows
from dsa_contracts.dsa.dims import QkRopeHeadDim
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.states import Bf16Row, Fp8Row, Fp8Row656, Local, Rotated
from dsa_contracts.dsa.typevars import L, N
from dsa_cp.layer.inputs import LayerInputs
from dsa_cp.layer.setting import Setting


def rotated_q(inputs: LayerInputs[L, N], setting: Setting[L, N]) -> Query[L, BF16, N]:
    """Return merged bf16 queries, rotated by this rank's positions."""
    ops = setting.kernels
    model, batch, local = setting.model, setting.batch, setting.local
    table, width = setting.cos_sin_cache, model.qk_rope_head_dim
    q_rope = ops.apply_rope(inputs.q_rope, local.positions, table, width, model.rope_style, batch)
    return ops.merge_q(inputs.q_nope, q_rope, batch)


def fused_rows(
    inputs: LayerInputs[L, N], setting: Setting[L, N]
) -> tuple[
    Query[L, E4M3, N],
    DenseKvRows[Local[L], Fp8Row, Rotated, N],
]:
    """Return this rank's merged queries and packed rows, rotated and quantised in one pass."""
    return setting.kernels.rope_quantize(
        inputs.q_nope,
        inputs.q_rope,
        inputs.k_nope,
        inputs.k_rope,
        setting.local.positions,
        setting.cos_sin_cache,
        setting.model.rope_style,
        setting.quant_scale,
        setting.quant_scale,
        setting.batch,
    )


def rotated_k(inputs: LayerInputs[L, N], setting: Setting[L, N]) -> RotatedRows[Local[L], N, QkRopeHeadDim]:
    """Return the rope part of this rank's keys, rotated."""
    model, table = setting.model, setting.cos_sin_cache
    positions, width = setting.local.positions, model.qk_rope_head_dim
    return setting.kernels.apply_rope(inputs.k_rope, positions, table, width, model.rope_style, setting.batch)


def rotated_rows(
    inputs: LayerInputs[L, N], setting: Setting[L, N], row_format: RowFormat[Bf16Row, BF16, BF16]
) -> DenseKvRows[Local[L], Bf16Row, Rotated, N]:
    """Return this rank's rotated bf16 rows."""
    return setting.kernels.pack_kv(inputs.k_nope, rotated_k(inputs, setting), row_format, setting.batch)


def scaled_rows(
    inputs: LayerInputs[L, N], setting: Setting[L, N], row_format: RowFormat[Fp8Row656, E4M3, BF16]
) -> DenseKvRows[Local[L], Fp8Row656, Rotated, N]:
    """Return this rank's rotated `fp8_656` rows."""
    return setting.kernels.quantize_rows(inputs.k_nope, rotated_k(inputs, setting), row_format, setting.batch)
