"""The legal placements of the gather, each an ordinary typed function: K's way from the projections into the KV cache.

mypy checks these functions against the contracts of the stages that they call; the planner chooses among them. Where K's
rows are final before they are gathered, a placement hands them to whichever delivery it is given; where work follows the
gather, it takes the one delivery that allows that.
"""

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from dsa_contracts.core.marks import BF16, E4M3, DType
from dsa_contracts.dsa.aliases import DenseKvRows, LatentColumns, Query, RotatedRows
from dsa_contracts.dsa.dims import Nnz, QkRopeHeadDim
from dsa_contracts.dsa.row_formats import RowFormat, bf16_format
from dsa_contracts.dsa.states import Bf16Row, Fp8Row, Fp8Row656, Global, Local, PackedRowStride, Rotated, Sequence
from dsa_contracts.dsa.typevars import FI, ND, NDI, RD, RDI, F, L, N
from dsa_cp.layer.cache import LayerCache
from dsa_cp.layer.delivery import Delivery, GatherIntoPools, GatherThenWrite
from dsa_cp.layer.inputs import LayerInputs
from dsa_cp.layer.local_rows import fused_rows, rotated_q, rotated_rows, scaled_rows
from dsa_cp.layer.setting import Setting

DeliveryType = TypeVar("DeliveryType", bound=Delivery)
DeliveryType_contra = TypeVar("DeliveryType_contra", bound=Delivery, contravariant=True)
QueryType_co = TypeVar("QueryType_co", bound=DType, covariant=True)


class Placement(Protocol[DeliveryType_contra, F, ND, RD, QueryType_co]):
    """K's way from the projections into the KV cache, and the queries' way to `attend`."""

    def __call__(
        self,
        inputs: LayerInputs[L, N],
        index_kv: DenseKvRows[Local[L], FI, Rotated, N],
        setting: Setting[L, N],
        cache: LayerCache[F, ND, RD, FI, NDI, RDI],
        delivery: DeliveryType_contra,
    ) -> Query[L, QueryType_co, N]:
        """Bring the rows of all ranks into the cache, K's and the indexer's; return this rank's merged queries.

        Args:
            inputs: this rank's rows of the layer.
            index_kv: this rank's packed rows of the indexer, which go the way of K's.
            setting: what the layer runs with.
            cache: this rank's KV cache of the layer.
            delivery: how rows come into the cache of every rank.

        Sync: collective.
        """


def deliver_fused_rows(
    inputs: LayerInputs[L, N],
    index_kv: DenseKvRows[Local[L], FI, Rotated, N],
    setting: Setting[L, N],
    cache: LayerCache[Fp8Row, E4M3, E4M3, FI, NDI, RDI],
    delivery: Delivery,
) -> Query[L, E4M3, N]:
    """RoPE and e4m3 fused on local rows, then the gather: the order since sgl-project/sglang#29161."""
    q, kv = fused_rows(inputs, setting)
    delivery.deliver(kv, index_kv, setting, cache)
    return q


def deliver_rotated_rows(
    inputs: LayerInputs[L, N],
    index_kv: DenseKvRows[Local[L], FI, Rotated, N],
    setting: Setting[L, N],
    cache: LayerCache[Bf16Row, BF16, BF16, FI, NDI, RDI],
    delivery: Delivery,
) -> Query[L, BF16, N]:
    """RoPE on local rows, then the gather of bf16 rows."""
    delivery.deliver(rotated_rows(inputs, setting, cache.formats.kv), index_kv, setting, cache)
    return rotated_q(inputs, setting)


def deliver_scaled_rows(
    inputs: LayerInputs[L, N],
    index_kv: DenseKvRows[Local[L], FI, Rotated, N],
    setting: Setting[L, N],
    cache: LayerCache[Fp8Row656, E4M3, BF16, FI, NDI, RDI],
    delivery: Delivery,
) -> Query[L, BF16, N]:
    """RoPE and `fp8_656` on local rows, then the gather: 656 bytes a row on the wire instead of 1152."""
    delivery.deliver(scaled_rows(inputs, setting, cache.formats.kv), index_kv, setting, cache)
    return rotated_q(inputs, setting)


def rotated_after_gather(
    inputs: LayerInputs[L, N],
    index_kv: DenseKvRows[Local[L], FI, Rotated, N],
    setting: Setting[L, N],
    cache: LayerCache[F, ND, RD, FI, NDI, RDI],
    wire: RowFormat[Bf16Row, BF16, BF16],
    delivery: GatherThenWrite,
) -> tuple[
    LatentColumns[Global[Sequence], BF16, PackedRowStride, Nnz],
    RotatedRows[Global[Sequence], Nnz, QkRopeHeadDim],
]:
    """Return the latent and the rope part of all rows, gathered raw and then rotated with the positions of all ranks."""
    ops, model, batch = setting.kernels, setting.model, setting.batch
    table, width = setting.cos_sin_cache, model.qk_rope_head_dim
    raw = ops.pack_kv(inputs.k_nope, inputs.k_rope, wire, batch)
    restored = ops.restore_order(delivery.gather(raw, wire, index_kv, setting, cache), batch)
    k_nope, k_rope = ops.split_kv(restored, wire, PackedRowStride, batch)
    return k_nope, ops.apply_rope(k_rope, batch.positions, table, width, model.rope_style, batch)


def gather_then_rotate(
    inputs: LayerInputs[L, N],
    index_kv: DenseKvRows[Local[L], FI, Rotated, N],
    setting: Setting[L, N],
    cache: LayerCache[Bf16Row, BF16, BF16, FI, NDI, RDI],
    delivery: GatherThenWrite,
) -> Query[L, BF16, N]:
    """The gather of raw bf16 rows, then RoPE with the positions of all ranks: legal, at three more passes over all rows."""
    ops, row_format = setting.kernels, cache.formats.kv
    k_nope, rotated = rotated_after_gather(inputs, index_kv, setting, cache, row_format, delivery)
    delivery.write(ops.pack_kv(k_nope, rotated, row_format, setting.batch), setting.out_cache_loc, setting, cache)
    return rotated_q(inputs, setting)


def gather_rotated_then_scale(
    inputs: LayerInputs[L, N],
    index_kv: DenseKvRows[Local[L], FI, Rotated, N],
    setting: Setting[L, N],
    cache: LayerCache[Fp8Row656, E4M3, BF16, FI, NDI, RDI],
    delivery: GatherThenWrite,
) -> Query[L, BF16, N]:
    """RoPE, the gather of bf16 rows, then `fp8_656` of all rows on every rank: vLLM 0.33's order."""
    ops, batch = setting.kernels, setting.batch
    wire = bf16_format(setting.model.kv_lora_rank, setting.model.qk_rope_head_dim)
    gathered = delivery.gather(rotated_rows(inputs, setting, wire), wire, index_kv, setting, cache)
    k_nope, rotated = ops.split_kv(gathered, wire, PackedRowStride, batch)
    scaled = ops.quantize_rows(k_nope, rotated, cache.formats.kv, batch)
    delivery.write(scaled, setting.rank_major_loc, setting, cache)
    return rotated_q(inputs, setting)


def gather_then_rotate_and_scale(
    inputs: LayerInputs[L, N],
    index_kv: DenseKvRows[Local[L], FI, Rotated, N],
    setting: Setting[L, N],
    cache: LayerCache[Fp8Row656, E4M3, BF16, FI, NDI, RDI],
    delivery: GatherThenWrite,
) -> Query[L, BF16, N]:
    """The gather of raw bf16 rows, RoPE with the positions of all ranks, then `fp8_656`: legal, and the dearest."""
    wire = bf16_format(setting.model.kv_lora_rank, setting.model.qk_rope_head_dim)
    k_nope, rotated = rotated_after_gather(inputs, index_kv, setting, cache, wire, delivery)
    scaled = setting.kernels.quantize_rows(k_nope, rotated, cache.formats.kv, setting.batch)
    delivery.write(scaled, setting.out_cache_loc, setting, cache)
    return rotated_q(inputs, setting)


@dataclass(frozen=True)
class Route(Generic[DeliveryType, F, ND, RD, QueryType_co]):
    """A placement with the delivery that it is given; mypy refuses a delivery that the placement cannot work with.

    Attributes:
        name: what the planner calls the two together.
        place: K's way to packed rows.
        delivery: their way into the KV cache of every rank.
    """

    name: str
    place: Placement[DeliveryType, F, ND, RD, QueryType_co]
    delivery: DeliveryType


_ROUTES = (
    Route("gather_rope", gather_then_rotate, GatherThenWrite()),
    Route("gather_rope_quantize_rows", gather_then_rotate_and_scale, GatherThenWrite()),
    Route("rope_gather", deliver_rotated_rows, GatherThenWrite()),
    Route("rope_gather_quantize_rows", gather_rotated_then_scale, GatherThenWrite()),
    Route("rope_gather_write", deliver_rotated_rows, GatherIntoPools()),
    Route("rope_quantize_gather", deliver_fused_rows, GatherThenWrite()),
    Route("rope_quantize_gather_write", deliver_fused_rows, GatherIntoPools()),
    Route("rope_quantize_rows_gather", deliver_scaled_rows, GatherThenWrite()),
    Route("rope_quantize_rows_gather_write", deliver_scaled_rows, GatherIntoPools()),
)

PLACEMENTS: dict[str, Route[Any, Any, Any, Any, Any]] = {route.name: route for route in _ROUTES}
"""Every legal placement by the name that the planner gives it; a test compares them with what the search finds."""
