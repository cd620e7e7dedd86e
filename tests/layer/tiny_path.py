"""A tiny path with no plan: seven tokens behind a prefix on two simulated ranks, as hashes of its bytes."""

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor

from dsa_contracts import Comm, declare_lasting
from dsa_contracts.core.marks import F32
from dsa_contracts.dsa.row_formats import bf16_format, fp8_format
from dsa_contracts.dsa.states import Packed, Pool, Rotated
from dsa_cp.comm import run_ranks
from dsa_cp.layer.inputs import cos_sin_cache, draw, shard_inputs
from dsa_cp.layer.local_batch import local_batch
from dsa_cp.layer.models import MODELS
from dsa_cp.layer.placements import rope_gather, rope_quantize_gather
from dsa_cp.layer.setting import Setting
from dsa_cp.layouts import Zigzag, build_batch
from dsa_cp.stages import attend

MODEL, CPU = MODELS["tiny"], torch.device("cpu")
ROW_FORMATS: dict[str, tuple[Any, Callable[..., Any]]] = {
    "bf16": (bf16_format(MODEL.kv_lora_rank, MODEL.qk_rope_head_dim), rope_gather),
    "fp8": (fp8_format(MODEL.kv_lora_rank, MODEL.qk_rope_head_dim), rope_quantize_gather),
}


def run_rank(comm: Comm, row_format: Any, place: Callable[..., Any]) -> tuple[Tensor, Tensor]:
    """The pool and the attention output of one rank; each row attends to all keys that it sees."""
    slots, table = torch.arange(2, 9), torch.tensor([[0, 1, 2]], dtype=torch.int32)
    pool_args = {"out_cache_loc": slots, "page_table": table, "page_size": 4}
    batch: Any = build_batch(Zigzag(), comm.size, comm.rank, [7], [2], **pool_args)  # type: ignore[arg-type]
    MODEL.bind(batch)
    local = local_batch(batch)
    setting: Any = Setting(MODEL, batch, local, comm, cos_sin_cache(MODEL, batch.max_seq_len, CPU))
    inputs: Any = shard_inputs(draw(MODEL, batch.nnz, 0, 0, 0, CPU), MODEL, local, batch)
    mark: Any = Packed
    rows = torch.zeros(3, 4, row_format.row_bytes, dtype=torch.uint8)
    pool: Any = declare_lasting(rows, Pool, mark[row_format.mark, Rotated], "pool")
    q = place(inputs, setting, pool, row_format)
    keys = torch.arange(MODEL.index_topk, dtype=torch.int32)
    topk: Any = torch.where(keys < local.causal_lens[:, None], keys, -1)
    per_row = (topk, local.causal_lens, local.request_of_row, batch.page_table)
    out, _ = attend(q, pool, *per_row, MODEL.softmax_scale, 1.0, 1.0, F32, row_format, batch)
    return pool, out


def digest() -> tuple[str, ...]:
    """Hashes of rank 0's pool and of all outputs, for bf16 and for fp8."""
    found = []
    for row_format, place in ROW_FORMATS.values():
        ranks = run_ranks(2, lambda comm, made=(row_format, place): run_rank(comm, *made))  # type: ignore[misc]
        found.append(sha256(ranks[0][0].numpy().tobytes()).hexdigest())
        found.append(sha256(torch.cat([out for _, out in ranks]).numpy().tobytes()).hexdigest())
    return tuple(found)
