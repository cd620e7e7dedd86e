"""The legal placements of the gather, each an ordinary typed function: K's way from the projections into the pool.

mypy checks these functions against the contracts of the stages that they call; the planner chooses among them. Each
returns the merged queries for `attend`; the rows of all ranks stand in the pool after the call.
"""

from typing import Protocol, TypeVar

from dsa_contracts import CpBatch, Ten, brand
from dsa_contracts.core.marks import BF16, E4M3, U8, Contiguous, DType
from dsa_contracts.dsa.aliases import SlotMapping
from dsa_contracts.dsa.dims import Nnz, NnzGathered, NumLocalHeads, NumPages, PageSize, QkHeadDim, RowBytes
from dsa_contracts.dsa.row_formats import RowFormat, bf16_format
from dsa_contracts.dsa.states import (
    Bf16Row,
    Fp8Row,
    Fp8Row656,
    Local,
    Packed,
    PackedRowStride,
    Pool,
    RankMajor,
    Rotated,
    Sequence,
)
from dsa_contracts.dsa.typevars import F, L, N
from dsa_cp.layer.inputs import LayerInputs
from dsa_cp.layer.local_rows import fused_rows, rotated_q, rotated_rows, scaled_rows
from dsa_cp.layer.setting import Setting

LatentType_contra = TypeVar("LatentType_contra", bound=DType, contravariant=True)
RopeType_contra = TypeVar("RopeType_contra", bound=DType, contravariant=True)
QueryType_co = TypeVar("QueryType_co", bound=DType, covariant=True)


class Placement(Protocol[F, LatentType_contra, RopeType_contra, QueryType_co]):
    """K's way from the projections into the pool, and the queries' way to `attend`."""

    def __call__(
        self,
        inputs: LayerInputs[L, N],
        setting: Setting[L, N],
        pool: Ten[Pool, Packed[F, Rotated], U8, Contiguous, NumPages, PageSize, RowBytes],
        row_format: RowFormat[F, LatentType_contra, RopeType_contra],
    ) -> Ten[Local[L], Rotated, QueryType_co, Contiguous, N, NumLocalHeads, QkHeadDim]:
        """Write the batch's rows of all ranks into the pool and return this rank's merged queries."""


def rank_major_loc(batch: CpBatch[L]) -> SlotMapping[RankMajor[L], NnzGathered]:
    """Return the slot of each gathered row; raises BatchError DSA304 where the batch has no out_cache_loc."""
    return brand(batch.required("rank_major_loc", "write_kv"))


def out_cache_loc(batch: CpBatch[L]) -> SlotMapping[Sequence, Nnz]:
    """Return the slot of each row in sequence order; raises BatchError DSA304 where the batch has none."""
    return brand(batch.required("out_cache_loc", "write_kv"))


def rope_quantize_gather(
    inputs: LayerInputs[L, N],
    setting: Setting[L, N],
    pool: Ten[Pool, Packed[Fp8Row, Rotated], U8, Contiguous, NumPages, PageSize, RowBytes],
    row_format: RowFormat[Fp8Row, E4M3, E4M3],
) -> Ten[Local[L], Rotated, E4M3, Contiguous, N, NumLocalHeads, QkHeadDim]:
    """RoPE and e4m3 fused on local rows, then the gather: the order since sgl-project/sglang#29161."""
    ops, batch = setting.kernels, setting.batch
    q, kv = fused_rows(inputs, setting)
    gathered = ops.all_gather_kv(kv, row_format, batch, setting.comm)
    ops.write_kv(pool, gathered, rank_major_loc(batch), row_format, batch)
    return q


def rope_gather(
    inputs: LayerInputs[L, N],
    setting: Setting[L, N],
    pool: Ten[Pool, Packed[Bf16Row, Rotated], U8, Contiguous, NumPages, PageSize, RowBytes],
    row_format: RowFormat[Bf16Row, BF16, BF16],
) -> Ten[Local[L], Rotated, BF16, Contiguous, N, NumLocalHeads, QkHeadDim]:
    """RoPE on local rows, then the gather of bf16 rows."""
    ops, batch = setting.kernels, setting.batch
    kv = rotated_rows(inputs, setting, row_format)
    gathered = ops.all_gather_kv(kv, row_format, batch, setting.comm)
    ops.write_kv(pool, gathered, rank_major_loc(batch), row_format, batch)
    return rotated_q(inputs, setting)


def gather_rope(
    inputs: LayerInputs[L, N],
    setting: Setting[L, N],
    pool: Ten[Pool, Packed[Bf16Row, Rotated], U8, Contiguous, NumPages, PageSize, RowBytes],
    row_format: RowFormat[Bf16Row, BF16, BF16],
) -> Ten[Local[L], Rotated, BF16, Contiguous, N, NumLocalHeads, QkHeadDim]:
    """The gather of raw bf16 rows, then RoPE with the positions of all ranks: legal, at three more passes over all rows."""
    ops = setting.kernels
    model, batch = setting.model, setting.batch
    table, width = setting.cos_sin_cache, model.qk_rope_head_dim
    raw = ops.pack_kv(inputs.k_nope, inputs.k_rope, row_format, batch)
    restored = ops.restore_order(ops.all_gather_kv(raw, row_format, batch, setting.comm), batch)
    k_nope, k_rope = ops.split_kv(restored, row_format, PackedRowStride, batch)
    rotated = ops.apply_rope(k_rope, batch.positions, table, width, model.rope_style, batch)
    ops.write_kv(pool, ops.pack_kv(k_nope, rotated, row_format, batch), out_cache_loc(batch), row_format, batch)
    return rotated_q(inputs, setting)


def rope_quantize_rows_gather(
    inputs: LayerInputs[L, N],
    setting: Setting[L, N],
    pool: Ten[Pool, Packed[Fp8Row656, Rotated], U8, Contiguous, NumPages, PageSize, RowBytes],
    row_format: RowFormat[Fp8Row656, E4M3, BF16],
) -> Ten[Local[L], Rotated, BF16, Contiguous, N, NumLocalHeads, QkHeadDim]:
    """RoPE and `fp8_656` on local rows, then the gather: 656 bytes a row on the wire instead of 1152."""
    ops, batch = setting.kernels, setting.batch
    kv = scaled_rows(inputs, setting, row_format)
    gathered = ops.all_gather_kv(kv, row_format, batch, setting.comm)
    ops.write_kv(pool, gathered, rank_major_loc(batch), row_format, batch)
    return rotated_q(inputs, setting)


def rope_gather_quantize_rows(
    inputs: LayerInputs[L, N],
    setting: Setting[L, N],
    pool: Ten[Pool, Packed[Fp8Row656, Rotated], U8, Contiguous, NumPages, PageSize, RowBytes],
    row_format: RowFormat[Fp8Row656, E4M3, BF16],
) -> Ten[Local[L], Rotated, BF16, Contiguous, N, NumLocalHeads, QkHeadDim]:
    """RoPE, the gather of bf16 rows, then `fp8_656` of all rows on every rank: vLLM 0.33's order."""
    ops, batch = setting.kernels, setting.batch
    wire = bf16_format(setting.model.kv_lora_rank, setting.model.qk_rope_head_dim)
    kv = rotated_rows(inputs, setting, wire)
    gathered = ops.all_gather_kv(kv, wire, batch, setting.comm)
    k_nope, rotated = ops.split_kv(gathered, wire, PackedRowStride, batch)
    ops.write_kv(pool, ops.quantize_rows(k_nope, rotated, row_format, batch), rank_major_loc(batch), row_format, batch)
    return rotated_q(inputs, setting)


def gather_rope_quantize_rows(
    inputs: LayerInputs[L, N],
    setting: Setting[L, N],
    pool: Ten[Pool, Packed[Fp8Row656, Rotated], U8, Contiguous, NumPages, PageSize, RowBytes],
    row_format: RowFormat[Fp8Row656, E4M3, BF16],
) -> Ten[Local[L], Rotated, BF16, Contiguous, N, NumLocalHeads, QkHeadDim]:
    """The gather of raw bf16 rows, RoPE with the positions of all ranks, then `fp8_656`: legal, and the dearest."""
    ops = setting.kernels
    model, batch = setting.model, setting.batch
    table, width = setting.cos_sin_cache, model.qk_rope_head_dim
    wire = bf16_format(model.kv_lora_rank, width)
    raw = ops.pack_kv(inputs.k_nope, inputs.k_rope, wire, batch)
    restored = ops.restore_order(ops.all_gather_kv(raw, wire, batch, setting.comm), batch)
    k_nope, k_rope = ops.split_kv(restored, wire, PackedRowStride, batch)
    rotated = ops.apply_rope(k_rope, batch.positions, table, width, model.rope_style, batch)
    ops.write_kv(pool, ops.quantize_rows(k_nope, rotated, row_format, batch), out_cache_loc(batch), row_format, batch)
    return rotated_q(inputs, setting)
