"""Rows that go straight into the caches of all GPUs leave the bytes of the reference."""

import os
import subprocess
import sys

import pytest
import torch

from dsa_cp.comm.process import run_processes
from dsa_cp.planner import CommKind
from tests.support import symmetric_programs as targets
from tests.support.whole_layer import replayed_layer

pytestmark = [pytest.mark.gpu, pytest.mark.process]
two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")

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


@two_gpus
@pytest.mark.parametrize("pushes", [True, False], ids=["push", "pull"])
def test_pools_have_the_bytes_of_the_reference(pushes: bool) -> None:
    for differing in run_processes(2, targets.differing_bytes_of_cases, CASES, pushes, 6, device="cuda"):
        assert differing == {str(case): [0] * 6 for case in CASES}


@two_gpus
@pytest.mark.parametrize("pushes", [True, False], ids=["push", "pull"])
def test_replays_of_a_graph_with_an_odd_number_of_layers_have_the_bytes_of_the_reference(pushes: bool) -> None:
    for differing in run_processes(2, targets.replayed_differences, 3, pushes, device="cuda"):
        assert differing == [0] * 6


@two_gpus
def test_gathered_rows_over_nccl_come_in_rank_order() -> None:
    results = run_processes(2, targets.gathered_over_nccl, [0, 1, 513], device="cuda")

    assert results == [("cuda:0", [True] * 3), ("cuda:1", [True] * 3)]


@two_gpus
def test_the_fused_stage_passes_its_checks_of_values() -> None:
    assert run_processes(2, targets.values_mode, device="cuda") == [0, 0]


@two_gpus
@pytest.mark.parametrize("comm", ["collective", "symmetric"])
def test_a_whole_layer_of_two_gpus_is_replayed_from_a_graph(comm: CommKind) -> None:
    for checked, same, is_new in run_processes(2, replayed_layer, "triton", comm, device="cuda", timeout_s=60.0):
        assert checked >= 8
        assert same
        assert is_new


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_more_ranks_than_gpus_share_one_and_leave_the_expected_bytes(ranks: int) -> None:
    # Streams that share a connection to the GPU wait for each other, and kernels that wait for each other then hang.
    command, environment = (
        [sys.executable, "-m", "tests.support.ranks_on_one_gpu", str(ranks)],
        {"CUDA_DEVICE_MAX_CONNECTIONS": "32"},
    )
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout.count(f"{[0] * ranks} bytes differ") == (4 if ranks == 3 else 8)
