"""The layouts against data recorded from the real sglang 0.5.15 and 0.5.23: every case of `tests/golden`.

Engine padding (more tokens in the batch than the requests have) stands at the end of the last request in these data. It is
recorded there as rows >= nnz; here every padding row is -1.

Differences, each with its reason:

- `local_q_indices` of interleave raises where a rank is above the number of tokens (`tiny_below_cp_size`, cp 4, ranks 2
  and 3). sglang never asks there, since `can_apply` is false; here such a rank has no row.
- `kv_len_prev` and `kv_len_next` of 0.5.15 leave the prefix out on the DSA path, whose indexer adds it again ("NSA leaves
  bare cumulatives"). Our lengths hold the prefix, as those of 0.5.23 do.
"""

import hashlib
import json
from itertools import accumulate, product
from pathlib import Path
from typing import Any

import pytest
import torch

from dsa_contracts.dsa.batch import CpBatch
from dsa_contracts.dsa.formulas import INTS, half_chunk, zigzag_bounds, zigzag_slot
from dsa_contracts.dsa.layout import Layout
from dsa_cp.layouts import Interleave, Zigzag, build_batches

GOLDEN = Path(__file__).parents[1] / "golden"
NAMES = (
    "sglang-0.5.15-in-seq-split",
    "sglang-0.5.15-round-robin-split",
    "sglang-0.5.23-forward-trtllm-interleave",
    "sglang-0.5.23-interleave",
    "sglang-0.5.23-zigzag",
)
IN_SEQ_SPLIT, ROUND_ROBIN, FORWARD, INTERLEAVE, ZIGZAG = NAMES
Case = dict[str, Any]
FILES: dict[str, Case] = {name: json.loads((GOLDEN / f"{name}.json").read_text()) for name in NAMES}


def cases(*names: str) -> pytest.MarkDecorator:
    found = [
        pytest.param(name, case, id=f"{name}-{case['name']}-cp{case['cp_size']}-{case.get('physical_padding', '')}")
        for name in names
        for case in FILES[name]["cases"]
    ]
    return pytest.mark.parametrize(("name", "case"), found)


def padded_lens(case: Case) -> list[int]:
    lens = list(case["extend_lens"])
    lens[-1] += case["num_tokens"] - sum(lens)
    return lens


def batches_of(name: str, case: Case) -> tuple[CpBatch[Layout], ...]:
    layout: Layout = Zigzag() if name in (IN_SEQ_SPLIT, ZIGZAG) else Interleave()
    unit = 2 * case["cp_size"] if name == ZIGZAG else case["cp_size"]
    return build_batches(
        layout,
        case["cp_size"],
        case["extend_lens"],
        case["prefix_lens"],
        padded_lens=padded_lens(case),
        row_alignment=unit if case.get("physical_padding") else 1,
    )


def rank_rows(batch: CpBatch[Layout]) -> list[int]:
    """Rows of each rank with engine padding, without the padding of the collective."""
    tables = batch.layout.segment_tables(batch.padded_lens, batch.cp_size)
    return [int((table.segments[:, 2] - table.segments[:, 1]).sum()) for table in tables]


def shard_of(batch: CpBatch[Layout], *, physical: bool) -> list[int]:
    return batch.padded_rows.tolist()[: None if physical else rank_rows(batch)[batch.cp_rank]]


def with_real_rows_only(rows: list[int], nnz: int) -> list[int]:
    return [row if row < nnz else -1 for row in rows]


def values(of_rows: torch.Tensor, rows: list[int]) -> list[int]:
    return [int(of_rows[row]) if row >= 0 else 0 for row in rows]


def test_golden_files_are_the_ones_that_the_readme_lists() -> None:
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in GOLDEN.glob("*.json")}
    listed = [line.split() for line in (GOLDEN / "README.md").read_text().splitlines() if line.endswith(".json")]
    assert sums == {name: digest for digest, name in listed}
    assert sum(len(FILES[name]["cases"]) for name in NAMES) == 152


@cases(*NAMES)
def test_positions_are_those_of_the_engine(name: str, case: Case) -> None:
    for batch in batches_of(name, case):
        assert batch.positions.tolist() == case["positions"][: batch.nnz]
        assert case["positions"][batch.nnz :] == [0] * (case["num_tokens"] - batch.nnz)
        assert batch.causal_lens.tolist() == [position + 1 for position in case["positions"][: batch.nnz]]
        if name != FORWARD:
            assert list(batch.seq_lens) == case["seq_lens"]


@cases(IN_SEQ_SPLIT, ROUND_ROBIN, INTERLEAVE, ZIGZAG)
def test_shards_hold_the_rows_and_positions_of_the_engine(name: str, case: Case) -> None:
    for batch, rank in zip(batches_of(name, case), case["ranks"], strict=True):
        shard = shard_of(batch, physical=case.get("physical_padding", False))
        assert shard == with_real_rows_only(rank["shard_rows"], batch.nnz)
        recorded = rank["positions_local"] if "positions_local" in rank else rank["shard_positions"]
        assert values(batch.positions, shard) == recorded
        assert batch.local_rows.tolist() == [row for row in shard if row >= 0]


@cases(IN_SEQ_SPLIT, ROUND_ROBIN, INTERLEAVE, ZIGZAG)
def test_collective_holds_the_rows_of_the_engine_and_restores_their_order(name: str, case: Case) -> None:
    zigzag_collective_is_not_aligned = {**case, "physical_padding": case.get("physical_padding") and name != ZIGZAG}
    for batch, rank in zip(batches_of(name, zigzag_collective_is_not_aligned), case["ranks"], strict=True):
        recorded = with_real_rows_only(rank["collective_input_rows"], batch.nnz)
        assert batch.padded_rows.tolist() == recorded
        start = batch.cp_rank * batch.nnz_padded
        assert batch.gathered_rows[start : start + batch.nnz_padded].tolist() == recorded
        assert batch.gathered_rows[batch.restore_index].tolist() == case["gathered_rows"][: batch.nnz]


@cases(INTERLEAVE, ZIGZAG)
def test_query_rows_are_those_of_the_strategy(name: str, case: Case) -> None:
    for batch, rank in zip(batches_of(name, case), case["ranks"], strict=True):
        recorded = rank["local_q_indices"]
        if isinstance(recorded, dict):
            assert recorded["raises"] == "RuntimeError"
            assert (case["name"], rank["can_apply"], batch.nnz_local) == ("tiny_below_cp_size", False, 0)
            continue
        assert shard_of(batch, physical=False) == with_real_rows_only(recorded, batch.nnz)


@cases(ROUND_ROBIN, INTERLEAVE)
def test_rows_of_each_request_are_those_of_the_engine(name: str, case: Case) -> None:
    for batch, rank in zip(batches_of(name, case), case["ranks"], strict=True):
        rows = torch.bincount(batch.local_request_of_row, minlength=batch.num_requests).tolist()
        if name == INTERLEAVE:
            assert rows == rank["rows_per_request"]
        else:
            assert [request for request, count in enumerate(rows) if count] == rank["request_index"]
            assert [count for count in rows if count] == rank["q_lens_per_request"]


@cases(INTERLEAVE)
def test_interleave_counts_are_those_of_the_strategy(name: str, case: Case) -> None:
    for batch, rank in zip(batches_of(name, case), case["ranks"], strict=True):
        assert rank["metadata"] == {
            **rank_counts(batch, physical=case["physical_padding"]),
            "total_seq_lens": case["num_tokens"],
            "bs": batch.num_requests,
        }


@cases(IN_SEQ_SPLIT, ZIGZAG)
def test_zigzag_metadata_is_that_of_the_engine(name: str, case: Case) -> None:
    for batch, rank in zip(batches_of(name, case), case["ranks"], strict=True):
        recorded = {field: value["data"] if isinstance(value, dict) else value for field, value in rank["metadata"].items()}
        physical = case.get("physical_padding", False)
        prefix_lens = batch.prefix_lens if name == ZIGZAG else (0,) * batch.num_requests
        expected = {**zigzag_metadata(batch, prefix_lens), **rank_counts(batch, physical=physical)}
        assert recorded == {field: value for field, value in expected.items() if field in recorded}
        later = {field for field in expected if "combined" in field or "cu_seqlens_kv" in field}
        assert expected.keys() - recorded.keys() == (later if name == IN_SEQ_SPLIT else set())


def rank_counts(batch: CpBatch[Layout], *, physical: bool) -> dict[str, list[int]]:
    rows = rank_rows(batch)
    in_collective = [batch.nnz_padded] * batch.cp_size
    if physical:
        return {
            "per_rank_logical_token": rows,
            "per_rank_actual_token": in_collective,
            "max_rank_len": in_collective,
        }
    return {"per_rank_actual_token": rows, "max_rank_len": in_collective}


def zigzag_metadata(batch: CpBatch[Layout], prefix_lens: tuple[int, ...]) -> dict[str, Any]:
    """sglang's lists, from the formulas that the layout runs; empty chunks are listed there as zeros."""
    cp_size, num_requests = batch.cp_size, batch.num_requests
    bounds: dict[tuple[int, int], tuple[int, int]] = {}  # of request and chunk, rank after rank in local order
    for rank, slot in product(range(cp_size), range(2 * num_requests)):
        request, half = zigzag_slot(slot, num_requests, INTS)
        key = request, half_chunk(cp_size, rank, half)
        bounds[key] = zigzag_bounds(batch.padded_lens[request], cp_size, rank, half, INTS)
    size = {key: stop - start for key, (start, stop) in bounds.items()}
    rank_major, order = list(bounds), sorted(bounds)
    mine = rank_major[2 * num_requests * batch.cp_rank :][: 2 * num_requests]
    segments = batch.layout.segment_tables(batch.padded_lens, cp_size)[batch.cp_rank].listed()
    assert segments == [(key[0], *bounds[key]) for key in mine if size[key]]

    kv_len, q_len = [prefix_lens[key[0]] + bounds[key][1] for key in mine], [size[key] for key in mine]
    metadata: dict[str, Any] = {
        "split_list": [size[key] for key in order],
        "zigzag_index": [order.index(key) for key in mine],
        "cp_reverse_index": [rank_major.index(key) for key in order],
        "reverse_split_len": [size[key] for key in rank_major],
        "total_seq_lens": sum(batch.padded_lens),
        "bs": num_requests,
    }
    halves = {"prev": slice(0, num_requests), "next": slice(num_requests, None), "combined": slice(None)}
    for half_name, part in halves.items():
        metadata[f"actual_seq_q_{half_name}_tensor"] = q_len[part]
        metadata[f"kv_len_{half_name}_tensor"] = kv_len[part]
        metadata[f"cu_seqlens_q_{half_name}_tensor"] = [0, *accumulate(q_len[part])]
        metadata[f"cu_seqlens_kv_{half_name}_tensor"] = [0, *accumulate(kv_len[part])]
        metadata[f"max_seqlen_q_{half_name}"] = max(q_len[part])
    for half_name in ("prev", "next"):
        metadata[f"actual_seq_q_{half_name}_list"] = q_len[halves[half_name]]
        metadata[f"kv_len_{half_name}_list"] = kv_len[halves[half_name]]
        metadata[f"total_q_{half_name}_tokens"] = sum(q_len[halves[half_name]])
    return metadata


def forward_of(name: str, rank: Case) -> Case | None:
    return rank if name == FORWARD else rank.get("forward_trtllm")


@cases(IN_SEQ_SPLIT, ROUND_ROBIN, FORWARD)
def test_the_backend_is_given_our_positions_and_lengths(name: str, case: Case) -> None:
    topk = FILES[name]["dsa_index_topk"]
    for batch, rank in zip(batches_of(name, case), case["ranks"], strict=True):
        forward = forward_of(name, rank)
        if forward is None:
            assert min(rank_rows(batch)) == 0
            continue
        shard = shard_of(batch, physical=case.get("physical_padding", False))
        lens = batch.causal_lens.clamp(max=topk)
        assert forward["rope_positions"] == values(batch.positions, shard)
        assert forward["seq_lens_to_kernel"] == values(lens, shard)
        if name == IN_SEQ_SPLIT:
            assert forward["seq_lens_in"] == lens.tolist() + [0] * (case["num_tokens"] - batch.nnz)
        if name == ROUND_ROBIN:
            assert forward["seq_lens_in"] == values(lens, shard)
        assert forward["kwargs"]["max_seq_len"] == batch.max_seq_len


@cases(FORWARD)
def test_rank_major_slots_are_the_slots_of_the_engine(name: str, case: Case) -> None:
    slots = torch.tensor(case["ranks"][0]["cache_loc"])
    layout: Layout = Interleave()
    for batch in build_batches(layout, case["cp_size"], case["extend_lens"], case["prefix_lens"], out_cache_loc=slots):
        assert batch.rank_major_loc is not None
        taken = [(row, slot) for row, slot in zip(batch.gathered_rows.tolist(), batch.rank_major_loc.tolist(), strict=True)]
        assert sorted(pair for pair in taken if pair[0] >= 0) == list(enumerate(slots.tolist()))
        assert {pair for pair in taken if pair[0] < 0} <= {(-1, -1)}
