"""Rows that go straight into the caches of all GPUs leave the bytes of the reference."""

import pytest
import torch

from dsa_cp.comm.process import run_processes
from tests.comm import symmetric_targets as targets

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.process,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices"),
]

CASES = [
    ("zigzag", [4097, 1, 130], None, False),
    ("zigzag", [4097, 1, 130], None, True),
    ("interleave", [127], None, False),
    ("interleave", [7, 1], None, True),
    ("zigzag", [1], None, False),
    ("vllm_zigzag", [1, 2000], None, False),
    ("zigzag", [100, 30], [128, 32], False),
    ("zigzag", [100, 30], [128, 32], True),
]
"""Odd sizes, empty ranks, replicated rows, padding at the end and inside; rows with padding rows and without."""


@pytest.mark.parametrize("pushes", [True, False], ids=["push", "pull"])
def test_pools_have_the_bytes_of_the_reference(pushes: bool) -> None:
    for differing in run_processes(2, targets.differing_bytes_of_cases, CASES, pushes, 6, device="cuda"):
        assert differing == {str(case): [0] * 6 for case in CASES}


@pytest.mark.parametrize("pushes", [True, False], ids=["push", "pull"])
def test_replays_of_a_graph_with_an_odd_number_of_layers_have_the_bytes_of_the_reference(pushes: bool) -> None:
    for differing in run_processes(2, targets.replayed_differences, 3, pushes, device="cuda"):
        assert differing == [0] * 6


def test_gathered_rows_over_nccl_come_in_rank_order() -> None:
    results = run_processes(2, targets.gathered_over_nccl, [0, 1, 513], device="cuda")

    assert results == [("cuda:0", [True] * 3), ("cuda:1", [True] * 3)]


def test_the_fused_stage_passes_its_checks_of_values() -> None:
    assert run_processes(2, targets.values_mode, device="cuda") == [0, 0]
