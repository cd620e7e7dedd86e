"""A call of every stage as the path would make it: branded, legal, with seeded values; and calls that are not legal."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import dsa_contracts.stages as contracts
import dsa_cp.stages as stages
from dsa_contracts import ContractError, CpBatch, Mode, RopeStyle, contract_of, stage
from dsa_contracts.core.marks import F32, Plain
from dsa_contracts.dsa.states import Bf16Row, Fp8Row, IndexBf16Row, KeyIds, Packed, PackedRowStride, Raw, Rotated
from tests.support.branded import (
    BF16,
    FP8,
    HEADS,
    INDEX,
    INDEX_DIM,
    INDEX_HEADS,
    RANK,
    ROPE,
    TOPK,
    WIDE,
    bytes_of,
    comm_of,
    gathered,
    local,
    local_index,
    normal,
    num_pages,
    packed,
    pool_of,
    table_for,
)

Stage = Callable[..., Any]
STAGES: dict[str, Stage] = {name: getattr(stages, name) for name in stages.__all__}
COLLECTIVE = {name for name, function in STAGES.items() if contract_of(function).comm_param}
LOCAL = [name for name in STAGES if name not in COLLECTIVE]


def valid_args(name: str, batch: CpBatch[Any]) -> dict[str, Any]:
    """Arguments of a stage on one rank, by name."""
    found = {**index_args(batch), **key_args(batch), **moving_args(batch), **attention_args(batch)}
    return {**found[name], "batch": batch}


def raw_rows(batch: CpBatch[Any]) -> dict[str, Any]:
    """Queries and keys of this rank, as the projections leave them."""
    rows = batch.nnz_local
    shapes = {"q_nope": (rows, HEADS, RANK), "q_rope": (rows, HEADS, ROPE), "k_nope": (rows, RANK), "k_rope": (rows, ROPE)}
    return {name: local(normal(*shape), Raw if "rope" in name else Plain, batch) for name, shape in shapes.items()}


def index_args(batch: CpBatch[Any]) -> dict[str, dict[str, Any]]:
    return {
        "rebuild_positions": {"positions": batch.positions, "rows": batch.local_rows},
        "reorder_causal_lens": {"causal_lens": batch.causal_lens, "rows": batch.local_rows},
    }


def key_args(batch: CpBatch[Any]) -> dict[str, dict[str, Any]]:
    """Arguments of the stages that rotate, quantise and pack this rank's rows."""
    raw, rows = raw_rows(batch), batch.nnz_local
    q_rope, k_rope = (local(raw[name].clone(), Rotated, batch) for name in ("q_rope", "k_rope"))
    at = {"positions": local_index(batch)[0], "cos_sin_cache": table_for(batch), "rope_style": RopeStyle.NEOX}
    return {
        "apply_rope": {"x": raw["q_rope"], **at, "rope_dim": ROPE},
        "rope_quantize": {**raw, **at, "quant_scale_q": 1.0, "quant_scale_kv": 2.0},
        "merge_q": {"q_nope": raw["q_nope"], "q_rope": q_rope},
        "pack_kv": {"k_nope": raw["k_nope"], "k_rope": k_rope, "row_format": BF16},
        "quantize_rows": {"k_nope": local(normal(rows, 128), Plain, batch), "k_rope": k_rope, "row_format": WIDE},
        "pack_index_key": {"k_index": local(normal(rows, INDEX_DIM), Rotated, batch), "row_format": INDEX},
    }


def pools_of(batch: CpBatch[Any]) -> tuple[Any, Any]:
    """A KV pool and an indexer's pool of bf16 rows."""
    pages, size = num_pages(batch), batch.page_size
    kv, index = (bytes_of(normal(pages, size, width)) for width in (RANK + ROPE, INDEX_DIM))
    return pool_of(kv, Bf16Row), pool_of(index, IndexBf16Row)


def moving_args(batch: CpBatch[Any]) -> dict[str, dict[str, Any]]:
    """Arguments of the stages that move packed rows."""
    rows, (pool, index_pool) = batch.nnz_local, pools_of(batch)
    kv = packed(bytes_of(normal(rows, RANK + ROPE)), Bf16Row, Rotated, batch)
    index_kv = packed(bytes_of(normal(rows, INDEX_DIM)), IndexBf16Row, Rotated, batch)
    ranks = gathered(bytes_of(normal(batch.nnz_gathered, RANK + ROPE)), Packed[Bf16Row, Rotated], batch)
    flat = torch.arange(rows * FP8.row_bytes).view(rows, FP8.row_bytes).byte()
    sent = {"kv": kv, "row_format": BF16, "comm": comm_of(batch)}
    written = {"pool": pool, "loc": batch.rank_major_loc}
    return {
        "all_gather_kv": sent,
        "restore_order": {"gathered": ranks},
        "split_kv": {"kv": packed(flat, Fp8Row, Rotated, batch), "row_format": FP8, "strides": PackedRowStride},
        "write_kv": {**written, "kv": ranks, "row_format": BF16},
        "gather_write_kv": {**sent, **written},
        "gather_write_kv_and_index": {
            **sent,
            **written,
            "index_pool": index_pool,
            "index_kv": index_kv,
            "index_format": INDEX,
        },
    }


def attention_args(batch: CpBatch[Any]) -> dict[str, dict[str, Any]]:
    """Arguments of the stages that read the pools."""
    rows, (pool, index_pool) = batch.nnz_local, pools_of(batch)
    _, lens, requests = local_index(batch)
    where = {"causal_lens": lens, "request_of_row": requests, "page_table": batch.page_table}
    topk: Tensor = torch.arange(TOPK, dtype=torch.int32).expand(rows, -1)
    return {
        "select_topk": {
            "q_index": local(normal(rows, INDEX_HEADS, INDEX_DIM), Rotated, batch),
            "head_weights": local(normal(rows, INDEX_HEADS).float(), Plain, batch),
            "pool": index_pool,
            **where,
            "index_topk": TOPK,
            "row_format": INDEX,
        },
        "attend": {
            "q": local(normal(rows, HEADS, RANK + ROPE), Rotated, batch),
            "pool": pool,
            "topk_indices": local(torch.where(topk < lens[:, None], topk, -1), KeyIds, batch),
            **where,
            "softmax_scale": 0.5,
            "q_scale": 1.0,
            "kv_scale": 1.0,
            "out_dtype": F32,
            "row_format": BF16,
        },
    }


def call(name: str, args: dict[str, Any], **changes: Any) -> Any:
    """Call a stage, with some of the arguments replaced."""
    return STAGES[name](**{**args, **changes})


def refusal(function: Callable[..., object], *args: Any, **kwargs: Any) -> ContractError:
    """The contract error that a call raises; of a collective stage the reason that it gives the other ranks."""
    try:
        function(*args, **kwargs)
    except ContractError as error:
        cause = error.__cause__
        return cause if error.code == "DSA502" and isinstance(cause, ContractError) else error
    raise AssertionError("the call was not refused")


def refused(name: str, args: dict[str, Any], **changes: Any) -> ContractError:
    """The error with which a stage refuses arguments of which some were replaced."""
    return refusal(call, name, args, **changes)


def faulty(name: str, body: Callable[[dict[str, Any]], object]) -> Stage:
    """An implementation of a stage's contract that returns what `body` makes of its arguments, under checks."""
    stub = getattr(contracts, name)

    def implementation(*args: object) -> object:
        return body(dict(zip(inspect.signature(stub).parameters, args, strict=True)))

    implementation.__signature__ = inspect.signature(stub)  # type: ignore[attr-defined]
    bound: Stage = stage(stub, mode=Mode.DEVELOPMENT)(implementation)
    return bound
