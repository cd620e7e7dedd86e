"""vLLM's layouts against what the real PCPManager of vLLM 0.33.0 made: short prefills, decodes, a graph's padded size.

`tests/golden/record_vllm_pcp.py` recorded the cases. vLLM's padding rows are row 0, here they are -1; its slot of what is
not written is -1, as here.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dsa_cp.layouts import VllmReplicated, VllmZigzag, build_batches

FILE = json.loads((Path(__file__).parents[1] / "golden" / "vllm-0.33-pcp.json").read_text())
CASES: list[dict[str, Any]] = FILE["cases"]


def flags(case: dict[str, Any]) -> list[bool]:
    return [request in case["decodes"] for request in range(len(case["extend_lens"]))]


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"cp{case['cp_size']}-dcp{case['dcp_world_size']}-{case['extend_lens']}"
)
def test_a_batch_is_what_vllm_makes_of_it(case: dict[str, Any]) -> None:
    layout = VllmZigzag() if case["dcp_world_size"] == 1 else VllmReplicated()
    slots = torch.arange(100, 100 + sum(case["extend_lens"]))
    batches = build_batches(
        layout,
        case["cp_size"],
        case["extend_lens"],
        row_alignment=case["padded_num_tokens"] or 1,
        out_cache_loc=slots,
        decodes=flags(case),
    )
    assert [batch.local_rows.tolist() for batch in batches] == case["rank_rows"]
    assert list(batches[0].rank_lens) == case["rank_num_tokens"]
    assert batches[0].gathered_rows.clamp(min=0).tolist() == case["padded_gather_idx"]
    assert batches[0].restore_index.tolist() == case["hidden_restore_idx"]
    assert batches[0].rank_major_loc is not None
    assert batches[0].rank_major_loc.tolist() == case["gathered_slot_mapping"]


def test_the_cases_are_of_both_configurations_with_short_prefills_and_decodes() -> None:
    assert FILE["about"]["vllm"] == "0.33.0"
    assert len(CASES) == 156
    short = [case for case in CASES if any(length < 2 * case["cp_size"] for length in case["extend_lens"])]
    assert len(short) > 100
    assert {case["dcp_world_size"] > 1 for case in CASES if case["decodes"]} == {True, False}
    empty = [case for case in CASES if 0 in case["rank_num_tokens"]]
    assert {case["dcp_world_size"] for case in empty} == {1}


@pytest.mark.parametrize("wrong", [VllmReplicated(), VllmZigzag()], ids=lambda layout: layout.name)
def test_each_layout_differs_from_the_other_configuration(wrong: VllmReplicated | VllmZigzag) -> None:
    # A comparison that cannot fail shows nothing: most batches of the other configuration are not this layout's.
    others = [case for case in CASES if (case["dcp_world_size"] == 1) == (wrong == VllmReplicated())]
    different = 0
    for case in others:
        batches = build_batches(wrong, case["cp_size"], case["extend_lens"], decodes=flags(case))
        different += [batch.local_rows.tolist() for batch in batches] != case["rank_rows"]
    assert different > len(others) * 3 // 4
