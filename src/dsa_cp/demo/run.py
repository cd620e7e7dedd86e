"""Run prefill batches through the path on simulated or real ranks, and compare with one rank."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from dsa_contracts import Comm, CpBatch, Layout, declare_lasting
from dsa_contracts.dsa.states import Packed, Pool, Rotated
from dsa_cp.demo.schedule import PrefillBatch, Schedule
from dsa_cp.layer.inputs import cos_sin_cache, draw, shard_inputs
from dsa_cp.layer.kernel_sets import KERNEL_SETS, reaching_peers
from dsa_cp.layer.local_batch import LocalBatch, local_batch
from dsa_cp.layer.models import ModelDims
from dsa_cp.layer.path import LayerPools, run_layer
from dsa_cp.layer.setting import Setting
from dsa_cp.layer.wiring import Wiring
from dsa_cp.layouts import build_batch

Progress = Callable[[int, int], None]
"""Called by rank 0 with the batches and layers done and their number in all."""


@dataclass(frozen=True)
class Job:
    """One cell of a run: what every rank needs to know to do its part.

    Attributes:
        model: the model's dims.
        schedule: the prefill batches.
        layout: which rank holds which tokens.
        wiring: the plan as functions.
        num_layers: layers to run.
        seed: seed of the inputs.
        device: where to run.
        kernels: name of the kernel set, see `dsa_cp.layer.kernel_sets`.
        make_local: makes the index tensors of a rank's rows; another function than the default is a breakage.
    """

    model: ModelDims
    schedule: Schedule
    layout: Layout
    wiring: Wiring[Any, Any, Any, Any]
    num_layers: int
    seed: int
    device: str = "cpu"
    kernels: str = "torch"
    make_local: Callable[[CpBatch[Any]], LocalBatch[Any, Any]] = local_batch


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


@runtime_checkable
class SharesPools(Protocol):
    """A group that makes pools which its ranks reach: a `SymmetricComm`, which a machine without GPUs need not import."""

    def new_pools(self, count: int, shape: Sequence[int]) -> list[Tensor]:
        """Return zeroed pools of uint8, the same call on every rank."""


def sharing_pools(comm: object) -> SharesPools | None:
    """Return a group that shares pools as such, None for any other."""
    return comm if isinstance(comm, SharesPools) else None


def new_pools(job: Job, layer: int, comm: Comm | None = None) -> LayerPools[Any]:
    """Return empty pools of one layer; where the group's ranks reach each other's memory, pools that they reach."""
    size, schedule = job.schedule.page_size, job.schedule
    shares = sharing_pools(comm)

    def pool(row_format: Any) -> Any:
        shape = (schedule.num_pages, size, row_format.row_bytes)
        if shares is not None:
            (rows,) = shares.new_pools(1, shape)
        else:
            rows = torch.zeros(shape, dtype=torch.uint8, device=job.device)
        return declare_lasting(rows, Pool, Packed[row_format.mark, Rotated], f"pool of layer {layer}", layer)

    return LayerPools(pool(job.wiring.row_format), pool(job.wiring.index_format))


def page_table(batch: PrefillBatch) -> list[list[int]]:
    """Return the pages of each request of a batch, short rows filled up with page 0."""
    width = max(len(chunk.pages) for chunk in batch.chunks)
    return [[*chunk.pages, *([0] * (width - len(chunk.pages)))] for chunk in batch.chunks]


def batch_for_rank(job: Job, batch: PrefillBatch, comm: Comm) -> CpBatch[Any]:
    """Return one rank's view of a prefill batch, with the model's dims bound."""
    size = job.schedule.page_size
    made = build_batch(
        job.layout,
        comm.size,
        comm.rank,
        batch.extend_lens,
        batch.prefix_lens,
        out_cache_loc=torch.tensor(batch.out_cache_loc(size), dtype=torch.int64),
        page_table=torch.tensor(page_table(batch), dtype=torch.int32),
        page_size=size,
        device=torch.device(job.device),
        plan=job.wiring.plan.name,
    )
    job.model.bind(made)
    return made


def run_rank(comm: Comm, job: Job, progress: Progress | None = None) -> RankResult:
    """Run a job's batches through all layers on one rank.

    Sync: two collectives a batch and layer.
    """
    kernels = KERNEL_SETS[job.kernels]
    if sharing_pools(comm) is not None:
        kernels = reaching_peers(kernels)
    pools = [new_pools(job, layer, comm) for layer in range(job.num_layers)]
    num_positions = max(chunk.prefix_len + chunk.extend_len for batch in job.schedule.batches for chunk in batch.chunks)
    table = cos_sin_cache(job.model, num_positions, torch.device(job.device))
    outs, rows, logs = [], [], []
    steps = len(job.schedule.batches) * job.num_layers
    for planned in job.schedule.batches:
        batch = batch_for_rank(job, planned, comm)
        local = job.make_local(batch)
        logs.append(batch.log)
        for layer in range(job.num_layers):
            view = batch.at_layer(layer)
            scale = job.wiring.quant_scale
            setting = Setting(job.model, view, local, comm, table, scale, scale, kernels)
            drawn = draw(job.model, batch.nnz, job.seed, planned.index, layer, torch.device(job.device))
            inputs = shard_inputs(drawn, job.model, local, view)
            outs.append(run_layer(inputs, setting, pools[layer], job.wiring).out)
            rows.append(batch.local_rows)
            if progress is not None and comm.rank == 0:
                progress(len(outs), steps)
    return RankResult(
        [*(layer.kv for layer in pools), *(layer.index for layer in pools)],
        [*outs],
        [*rows],
        sum(sum(log.calls.values()) for log in logs),
        sum(sum(log.checked.values()) for log in logs),
        sum(sum(log.unknown.values()) for log in logs),
    )
