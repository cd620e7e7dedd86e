"""A tiny path: seven tokens behind a prefix on two simulated ranks, as hashes of its bytes."""

from hashlib import sha256
from typing import Any

import torch
from torch import Tensor

from dsa_contracts import Comm
from dsa_cp.comm import run_ranks
from dsa_cp.layer.cache import new_cache
from dsa_cp.layer.inputs import draw, shard_inputs
from dsa_cp.layer.models import MODELS
from dsa_cp.layouts import Zigzag, build_batch
from dsa_cp.planner import attention_layer, cache_formats, make_plan

MODEL, CPU = MODELS["tiny"], torch.device("cpu")
BACKENDS = {"bf16": "flashmla_sparse", "fp8": "trtllm"}


def run_rank(comm: Comm, row_format: str) -> tuple[Tensor, Tensor]:
    """The KV rows and the attention output of one rank."""
    slots, table = torch.arange(2, 9), torch.tensor([[0, 1, 2]], dtype=torch.int32)
    pool_args = {"out_cache_loc": slots, "page_table": table, "page_size": 4}
    batch: Any = build_batch(Zigzag(), comm.size, comm.rank, [7], [2], **pool_args)  # type: ignore[arg-type]
    plan = make_plan(BACKENDS[row_format], row_format, layout="zigzag", cp_size=comm.size)
    layer: Any = attention_layer(batch, MODEL, plan, comm)
    cache = new_cache(cache_formats(plan, MODEL), 3, 4)
    inputs = shard_inputs(draw(MODEL, batch.nnz, 0, 0, 0, CPU), MODEL, layer.setting.local, batch)
    return cache.kv, layer(inputs, cache, 0).out


def digest() -> tuple[str, ...]:
    """Hashes of rank 0's pool and of all outputs, for bf16 and for fp8."""
    found = []
    for row_format in BACKENDS:
        ranks = run_ranks(2, lambda comm, made=row_format: run_rank(comm, made))  # type: ignore[misc]
        found.append(sha256(ranks[0][0].numpy().tobytes()).hexdigest())
        found.append(sha256(torch.cat([out for _, out in ranks]).numpy().tobytes()).hexdigest())
    return tuple(found)
