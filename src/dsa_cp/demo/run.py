"""Run prefill batches through the path on simulated or real ranks, and compare with one rank."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dsa_contracts import Comm, CpBatch, Layout
from dsa_cp.demo.schedule import PrefillBatch, Schedule
from dsa_cp.layer.cache import AnyCache, new_cache
from dsa_cp.layer.inputs import cos_sin_cache, draw, shard_inputs
from dsa_cp.layer.models import ModelDims
from dsa_cp.layer.path import AttentionLayer
from dsa_cp.layouts import Interleave, build_batch
from dsa_cp.planner import Plan, attention_layer, cache_formats, plan_for

Progress = Callable[[int, int], None]
"""Called by rank 0 with the batches and layers done and their number in all."""

AnyLayer = AttentionLayer[Any, Any, Any]


def as_it_is(layer: AnyLayer) -> AnyLayer:
    """Return a layer as the plan makes it."""
    return layer


@dataclass(frozen=True)
class Job:
    """One cell of a run: what every rank needs to know to do its part.

    Attributes:
        model: the model's dims.
        schedule: the prefill batches.
        layout: which rank holds which tokens.
        plan: the plan.
        num_layers: layers to run.
        seed: seed of the inputs.
        device: where to run.
        kernels: name of the kernel set, see `dsa_cp.layer.kernel_sets`.
        layer_quant_scale: scale of flat e4m3 rows, where the plan has one a layer.
        amend: changes a batch's layer; another function than the default is a breakage.
    """

    model: ModelDims
    schedule: Schedule
    layout: Layout
    plan: Plan
    num_layers: int
    seed: int
    device: str = "cpu"
    kernels: str = "torch"
    layer_quant_scale: float = 1.0
    amend: Callable[[AnyLayer], AnyLayer] = as_it_is


def alone(job: Job) -> Job:
    """Return the job of one rank by itself, whose local order is the sequence order; its plan is made for one rank."""
    options = job.plan.options.model_copy(update={"cp_size": 1, "layout": "interleave", "comm": "collective"})
    return replace(job, layout=Interleave(), plan=plan_for(options))


@dataclass(frozen=True)
class RankResult:
    """What one rank has after a job.

    Attributes:
        pools: KV pool of each layer, then the indexer's pool of each layer: bytes [num_pages, page_size, row_bytes].
        outs: attention output of each batch and layer, float32 [nnz_local, heads, kv_lora_rank].
        rows: rows of the batch that each of `outs` belongs to, int64 [nnz_local].
        calls: stage calls that were checked.
        checks: facts that were compared anew, remembered calls not counted.
        unknown: arguments that carried no brand.
    """

    pools: list[Tensor]
    outs: list[Tensor]
    rows: list[Tensor]
    calls: int
    checks: int
    unknown: int


def caches_for(job: Job, comm: Comm) -> list[AnyCache]:
    """Return an empty KV cache for each layer; where the group's ranks reach each other's memory, caches that they reach."""
    formats, schedule = cache_formats(job.plan, job.model), job.schedule
    sizes = schedule.num_pages, schedule.page_size
    return [new_cache(formats, *sizes, layer=layer, device=job.device, comm=comm) for layer in range(job.num_layers)]


def page_table(batch: PrefillBatch) -> list[list[int]]:
    """Return the pages of each request of a batch, short rows filled up with page 0."""
    width = max(len(chunk.pages) for chunk in batch.chunks)
    return [[*chunk.pages, *([0] * (width - len(chunk.pages)))] for chunk in batch.chunks]


def batch_for_rank(job: Job, batch: PrefillBatch, comm: Comm) -> CpBatch[Any]:
    """Return one rank's view of a prefill batch."""
    size = job.schedule.page_size
    return build_batch(
        job.layout,
        comm.size,
        comm.rank,
        batch.extend_lens,
        batch.prefix_lens,
        out_cache_loc=torch.tensor(batch.out_cache_loc(size), dtype=torch.int64),
        page_table=torch.tensor(page_table(batch), dtype=torch.int32),
        page_size=size,
        device=torch.device(job.device),
        plan=job.plan.name,
    )


def layer_for_rank(job: Job, planned: PrefillBatch, comm: Comm, table: Any) -> AnyLayer:
    """Return the attention path of a prefill batch on one rank."""
    batch = batch_for_rank(job, planned, comm)
    scale = job.layer_quant_scale
    return job.amend(attention_layer(batch, job.model, job.plan, comm, job.kernels, table=table, layer_quant_scale=scale))


def run_rank(comm: Comm, job: Job, progress: Progress | None = None) -> RankResult:
    """Run a job's batches through all layers on one rank.

    Sync: one or two collectives a batch and layer, see `dsa_cp.layer.path`.
    """
    device, caches = torch.device(job.device), caches_for(job, comm)
    num_positions = max(chunk.prefix_len + chunk.extend_len for batch in job.schedule.batches for chunk in batch.chunks)
    table = cos_sin_cache(job.model, num_positions, device)
    outs, rows, logs = [], [], []
    steps = len(job.schedule.batches) * job.num_layers
    for planned in job.schedule.batches:
        layer = layer_for_rank(job, planned, comm, table)
        batch, local = layer.setting.batch, layer.setting.local
        logs.append(batch.log)
        for index, cache in enumerate(caches):
            drawn = draw(job.model, batch.nnz, job.seed, planned.index, index, device)
            inputs = shard_inputs(drawn, job.model, local, batch.at_layer(index))
            outs.append(layer(inputs, cache, index).out)
            rows.append(batch.local_rows)
            if progress is not None and comm.rank == 0:
                progress(len(outs), steps)
    return RankResult(
        [*(cache.kv for cache in caches), *(cache.index for cache in caches)],
        [*outs],
        [*rows],
        sum(sum(log.calls.values()) for log in logs),
        sum(sum(log.checked.values()) for log in logs),
        sum(sum(log.unknown.values()) for log in logs),
    )
