"""A whole layer of the path in a CUDA graph, with the checks of development mode running while it is captured."""

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from dsa_contracts import Comm
from dsa_cp.comm.distributed import DistributedComm
from dsa_cp.comm.symmetric import SymmetricComm
from dsa_cp.demo.cells import RunSpec, make_job
from dsa_cp.demo.run import batch_for_rank, new_pools
from dsa_cp.demo.schedule import build_schedule
from dsa_cp.demo.trace import TraceRequest
from dsa_cp.layer.inputs import LayerInputs, cos_sin_cache, draw, shard_inputs
from dsa_cp.layer.kernel_sets import KERNEL_SETS, reaching_peers
from dsa_cp.layer.local_batch import local_batch
from dsa_cp.layer.models import MODELS
from dsa_cp.layer.path import run_layer
from dsa_cp.layer.setting import Setting
from dsa_cp.layouts import Zigzag
from dsa_cp.planner import CommKind, make_plan

TOKENS = 4500
"""New tokens: with two ranks, too, rows see more keys than they may choose."""


def replayed_layer(comm: Comm, kernels: str, comm_kind: CommKind = "collective") -> tuple[int, bool, bool]:
    """Capture a layer, replay it with fresh inputs, run it once more without the graph.

    Returns:
        Stage calls that were checked at capture; whether replay and run have the same output; whether it is another one
        than that of the inputs before.
    """
    device = torch.device("cuda", torch.cuda.current_device())
    group: Any = SymmetricComm(comm, device) if comm_kind == "symmetric" and isinstance(comm, DistributedComm) else comm
    chosen = reaching_peers(KERNEL_SETS[kernels]) if group is not comm else KERNEL_SETS[kernels]
    model, schedule = MODELS["deepseek-v3.2"], build_schedule((TraceRequest(0, TOKENS, 1, tuple(range(-(-TOKENS // 512)))),))
    plan = make_plan("trtllm", "fp8", layout="zigzag", cp_size=comm.size, comm=comm_kind)
    job = make_job(RunSpec(model, schedule, comm.size, 1, device="cuda", kernels=kernels), Zigzag(), plan)
    batch = batch_for_rank(job, schedule.batches[0], comm)
    local, view, pools = local_batch(batch), batch.at_layer(0), new_pools(job, 0, group)
    table, scale = cos_sin_cache(model, TOKENS, device), job.wiring.quant_scale
    setting: Setting[Any, Any] = Setting(model, view, local, group, table, scale, scale, chosen)
    inputs = shard_inputs(draw(model, batch.nnz, 0, 0, 0, device), model, local, view)

    def layer() -> Tensor:
        return run_layer(inputs, setting, pools, job.wiring).out

    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        before = layer().clone()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    batch.log.calls.clear()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = layer()
    checked = sum(batch.log.calls.values())
    redraw(inputs, draw(model, batch.nnz, 1, 0, 0, device), model, local, view)
    torch.cuda.synchronize()
    comm.agree("redrawn")
    graph.replay()
    torch.cuda.synchronize()
    replayed = captured.clone()
    comm.agree("replayed")
    again = layer()
    torch.cuda.synchronize()
    return checked, bool(torch.equal(replayed, again)), not torch.equal(replayed, before)


def redraw(inputs: LayerInputs[Any, Any], drawn: Any, *rest: Any) -> None:
    """Put other rows where a captured layer reads its inputs."""
    fresh = shard_inputs(drawn, *rest)
    for item in fields(LayerInputs):
        getattr(inputs, item.name).copy_(getattr(fresh, item.name))
