"""A whole layer of the path in a CUDA graph, with the checks of development mode running while it is captured."""

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from dsa_contracts import Comm
from dsa_cp.comm.distributed import DistributedComm
from dsa_cp.comm.symmetric import SymmetricComm
from dsa_cp.demo.cells import RunSpec, make_job
from dsa_cp.demo.run import caches_for, layer_for_rank
from dsa_cp.demo.schedule import build_schedule
from dsa_cp.demo.trace import TraceRequest
from dsa_cp.layer.inputs import LayerInputs, cos_sin_cache, draw, shard_inputs
from dsa_cp.layer.models import MODELS
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
    model, schedule = MODELS["deepseek-v3.2"], build_schedule((TraceRequest(0, TOKENS, 1, tuple(range(-(-TOKENS // 512)))),))
    plan = make_plan("trtllm", "fp8", layout="zigzag", cp_size=comm.size, comm=comm_kind)
    job = make_job(RunSpec(model, schedule, comm.size, 1, device="cuda", kernels=kernels), Zigzag(), plan)
    whole = layer_for_rank(job, schedule.batches[0], group, cos_sin_cache(model, TOKENS, device))
    batch, local, (cache,) = whole.setting.batch, whole.setting.local, caches_for(job, group)
    inputs = shard_inputs(draw(model, batch.nnz, 0, 0, 0, device), model, local, batch)

    def layer() -> Tensor:
        return whole(inputs, cache, 0).out

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
    redraw(inputs, draw(model, batch.nnz, 1, 0, 0, device), model, local, batch)
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
