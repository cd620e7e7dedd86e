"""A plan as functions and formats: after this step there is nothing left to decide."""

from dataclasses import dataclass
from typing import Any, Generic

from dsa_contracts.core.marks import DType
from dsa_contracts.dsa.codes import PlanError
from dsa_contracts.dsa.row_formats import KV_FORMATS, RowFormat, index_bf16_format, index_fp8_format
from dsa_contracts.dsa.states import FormatMark
from dsa_contracts.dsa.typevars import ND, QD, RD, F
from dsa_cp.layer import fused_placements, placements
from dsa_cp.layer.models import ModelDims
from dsa_cp.layer.placements import Placement
from dsa_cp.planner import Plan

IndexMark = FormatMark
"""The indexer's rows are of one of two formats; which, no stage of the path needs to know."""


@dataclass(frozen=True)
class Wiring(Generic[F, ND, RD, QD]):
    """What a layer runs with.

    Attributes:
        plan: the plan.
        row_format: format of KV rows.
        index_format: format of the indexer's rows.
        place: K's way into the pool.
        quant_scale: multiplies q and K before a flat e4m3 cast; 1 where nothing is cast flat.
    """

    plan: Plan
    row_format: RowFormat[F, ND, RD]
    index_format: RowFormat[IndexMark, DType, DType]
    place: Placement[F, ND, RD, QD]
    quant_scale: float = 1.0

    @property
    def q_scale(self) -> float:
        """Value of a query = code * q_scale."""
        return 1.0 / self.quant_scale

    @property
    def kv_scale(self) -> float:
        """Value of a flat row = code * kv_scale."""
        return 1.0 / self.quant_scale

    @property
    def gathers_into_pool(self) -> bool:
        """Whether rows go straight into the pools of all ranks; the indexer's go the way of K's."""
        return "gather_write_kv" in self.plan.stages


PLACEMENTS: dict[str, Placement[Any, Any, Any, Any]] = {
    "gather_rope": placements.gather_rope,
    "gather_rope_quantize_rows": placements.gather_rope_quantize_rows,
    "rope_gather": placements.rope_gather,
    "rope_gather_quantize_rows": placements.rope_gather_quantize_rows,
    "rope_gather_write": fused_placements.rope_gather_write,
    "rope_quantize_gather": placements.rope_quantize_gather,
    "rope_quantize_gather_write": fused_placements.rope_quantize_gather_write,
    "rope_quantize_rows_gather": placements.rope_quantize_rows_gather,
    "rope_quantize_rows_gather_write": fused_placements.rope_quantize_rows_gather_write,
}
"""Every legal placement by the name that the planner gives it; a test compares them with what the search finds."""


def wire(plan: Plan, model: ModelDims, layer_quant_scale: float = 1.0) -> Wiring[Any, Any, Any, Any]:
    """Return the functions and formats that a plan names.

    Args:
        plan: the plan.
        model: dims of the rows.
        layer_quant_scale: multiplies q and K before the cast, where the plan has one scale a layer.

    Raises:
        PlanError: DSA402, the plan is legal but no function has its stages.
    """
    if plan.placement not in PLACEMENTS:
        raise PlanError(
            f"no function has the stages {plan.placement}", code="DSA402", facts=[("known", ", ".join(PLACEMENTS))]
        )
    row_format = KV_FORMATS[plan.row_format](model.kv_lora_rank, model.qk_rope_head_dim)
    scale = layer_quant_scale if plan.decided("kv_scale").value == "layer" else 1.0
    index = index_fp8_format if row_format.is_quantized else index_bf16_format
    return Wiring(plan, row_format, index(model.index_head_dim), PLACEMENTS[plan.placement], scale)
