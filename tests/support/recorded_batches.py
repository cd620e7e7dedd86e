"""Batches of engines as recorded, put together the way an observer of the engine would: through the public API alone."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dsa_contracts import CpBatch, GivenLayout, RowCounts

GOLDEN = Path(__file__).parents[1] / "golden"
SGLANG: dict[str, Any] = json.loads((GOLDEN / "batches-sglang-0.5.23.json").read_text())
VLLM: dict[str, Any] = json.loads((GOLDEN / "batches-vllm-0.33.json").read_text())
Case = dict[str, Any]


def bf16(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.bfloat16)


def sglang_batch(case: Case, rank: int) -> CpBatch[GivenLayout]:
    """One rank's batch: sglang pads the shard, sends what the fullest rank holds, and its writer skips slot 0."""
    ranks = case["ranks"]
    layout = GivenLayout.from_rows(f"sglang {case['strategy']}", [one["shard_rows"] for one in ranks], case["extend_lens"])
    return CpBatch.from_engine(
        layout,
        case["cp_size"],
        rank,
        case["extend_lens"],
        case["prefix_lens"],
        rows=RowCounts(shard=ranks[rank]["per_rank_actual_token"][rank], collective=len(ranks[rank]["collective_input"])),
        out_cache_loc=torch.tensor(case["out_cache_loc"]),
        skip=0,
        page_size=SGLANG["about"]["page_size"],
    )


def vllm_replicated(case: Case) -> list[int]:
    """Requests that every rank holds whole."""
    whole = [(request, 0, new) for request, new in enumerate(case["extend_lens"]) if new]
    return [each[0] for each in whole if all(list(each) in one["segments"] for one in case["ranks"])]


def vllm_engine_rows(case: Case) -> list[int]:
    """Rows that vLLM hands to its cache: under DCP the decodes once, then what the gather of the prefills gives."""
    size = case["ranks"][0]["num_tokens_after_padding"]
    shards: list[list[int]] = [one["rows"] + [-1] * (size - len(one["rows"])) for one in case["ranks"]]
    own = len(case["decodes"]) if case["dcp_size"] > 1 else 0
    if own == size:
        return list(shards[0])
    return [*shards[0][:own], *(row for shard in shards for row in shard[own:])]


def vllm_batch(case: Case, rank: int) -> CpBatch[GivenLayout]:
    """One rank's batch: padding rows are anything, negative slots are skipped, and DCP deals the cache to the ranks."""
    own, rows = case["ranks"][rank], vllm_engine_rows(case)
    slots, size = torch.tensor(own["slot_mapping"]), own["num_tokens_after_padding"]
    layout = GivenLayout.from_lists("vllm pcp", [one["segments"] for one in case["ranks"]], replicated=vllm_replicated(case))
    return CpBatch.from_engine(
        layout,
        case["cp_size"],
        rank,
        case["extend_lens"],
        case["prefix_lens"],
        rows=RowCounts(shard=size, collective=size, engine=len(rows)),
        padded_lens=case["extend_lens"],
        out_cache_loc=slots,
        owned=slots >= 0 if case["dcp_size"] > 1 else None,
        padding="ignored",
        page_table=torch.tensor(case["page_table"], dtype=torch.int32) if case["dcp_size"] == 1 else None,
        page_size=VLLM["about"]["page_size"],
        indices={"engine_rows": torch.tensor(rows)},
    )
