"""The door: from batch, model, plan and group to a layer that can be called, with nothing left to decide."""

from typing import Any, overload

from dsa_contracts import Comm, CpBatch
from dsa_contracts.core.marks import F32
from dsa_contracts.dsa.aliases import CosSinCache
from dsa_contracts.dsa.codes import PlanError
from dsa_contracts.dsa.dims import NnzLocal
from dsa_contracts.dsa.row_formats import KV_FORMATS, index_bf16_format, index_fp8_format
from dsa_contracts.dsa.typevars import L, N
from dsa_cp.layer.cache import AnyFormats, CacheFormats
from dsa_cp.layer.inputs import cos_sin_cache
from dsa_cp.layer.kernel_sets import TorchKernels, kernels_for
from dsa_cp.layer.local_batch import LocalBatch, local_batch
from dsa_cp.layer.models import ModelDims
from dsa_cp.layer.path import AttentionLayer
from dsa_cp.layer.placements import PLACEMENTS, Route
from dsa_cp.layer.setting import Setting
from dsa_cp.planner.plan import Plan


def cache_formats(plan: Plan, model: ModelDims) -> AnyFormats:
    """Return the row formats of a layer's KV cache under a plan, at a model's widths."""
    kv = KV_FORMATS[plan.row_format](model.kv_lora_rank, model.qk_rope_head_dim)
    index = index_fp8_format if kv.is_quantized else index_bf16_format
    return CacheFormats(kv, index(model.index_head_dim))


def route_of(plan: Plan) -> Route[Any, Any, Any, Any, Any]:
    """Return the placement and the delivery that a plan names.

    Raises:
        PlanError: DSA402, the plan is legal but no function has its stages.
    """
    if plan.placement not in PLACEMENTS:
        known = [("known", ", ".join(PLACEMENTS))]
        raise PlanError(f"no function has the stages {plan.placement}", code="DSA402", facts=known)
    return PLACEMENTS[plan.placement]


def quant_scale_of(plan: Plan, layer_quant_scale: float) -> float:
    """Return what multiplies q and K before the cast: the layer's scale where the plan has one a layer, else 1."""
    return layer_quant_scale if plan.decided("kv_scale").value == "layer" else 1.0


@overload
def attention_layer(
    batch: CpBatch[L],
    model: ModelDims,
    plan: Plan,
    comm: Comm,
    kernels: str | type[TorchKernels] = "torch",
    *,
    local: None = None,
    table: CosSinCache | None = None,
    layer_quant_scale: float = 1.0,
) -> AttentionLayer[L, NnzLocal, F32]: ...
@overload
def attention_layer(
    batch: CpBatch[L],
    model: ModelDims,
    plan: Plan,
    comm: Comm,
    kernels: str | type[TorchKernels] = "torch",
    *,
    local: LocalBatch[L, N],
    table: CosSinCache | None = None,
    layer_quant_scale: float = 1.0,
) -> AttentionLayer[L, N, F32]: ...
def attention_layer(
    batch: CpBatch[Any],
    model: ModelDims,
    plan: Plan,
    comm: Comm,
    kernels: str | type[TorchKernels] = "torch",
    *,
    local: LocalBatch[Any, Any] | None = None,
    table: CosSinCache | None = None,
    layer_quant_scale: float = 1.0,
) -> AttentionLayer[Any, Any, F32]:
    """Return the attention path of a batch, to be called once a layer; what depends on the batch alone is made here.

    Outputs are float32; `layer.returning(BF16)` is the same layer with another dtype.

    Args:
        batch: the batch, with its slot mapping (`out_cache_loc`) and `page_table`; the model's dims are bound for it.
        model: the model's dims.
        plan: where K is rotated, quantised and gathered.
        comm: the context-parallel group.
        kernels: the implementations of the stages: a name of `KERNEL_SETS`, or a set.
        local: index tensors of this rank's rows; None: its rows without padding. `padded_local_batch` has padding rows.
        table: the cos/sin table, which outlives batches; None: one is made, as long as this batch asks for.
        layer_quant_scale: multiplies q and K before a flat e4m3 cast, where the plan has one scale a layer.

    Raises:
        PlanError: DSA402, no function has the plan's stages, or the plan is for another group than the batch.
        BatchError: DSA304, the batch lacks its slot mapping or its page table.
        ArgumentError: DSA602, there is no kernel set of that name.
    """
    route = route_of(plan)
    _refuse_other_batch(plan, batch)
    for name in ("out_cache_loc", "rank_major_loc", "page_table"):
        batch.required(name, "attention_layer")
    model.bind(batch)
    chosen = kernels_for(kernels, comm)
    setting = Setting(
        model,
        batch,
        local_batch(batch, chosen) if local is None else local,
        comm,
        cos_sin_cache(model, batch.max_seq_len, batch.device) if table is None else table,
        quant_scale_of(plan, layer_quant_scale),
        chosen,
    )
    return AttentionLayer(setting, route, F32)


def _refuse_other_batch(plan: Plan, batch: CpBatch[Any]) -> None:
    """Raise PlanError DSA402 where a plan was made for another number of ranks, or the batch names another plan."""
    facts = [("where", batch.where), ("try", "make the plan for the group of the batch, and give build_batch its name")]
    if plan.options.ranks != batch.cp_size:
        text = f"the plan is for {plan.options.ranks} ranks, the batch is spread over {batch.cp_size}"
        raise PlanError(text, code="DSA402", facts=facts)
    if batch.plan not in ("", plan.name):
        text = f"the batch follows plan {batch.plan}, the layer is asked for with {plan.name}"
        raise PlanError(text, code="DSA402", facts=facts)
