"""What needs two GPUs: the K tail leaves equal bytes in every order, and the cells have the bytes of one GPU."""

import json

import pytest
import torch

from dsa_cp.cli import main

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.process,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices"),
]


def test_the_k_tail_is_measured_in_every_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--part", "k_tail", "--rows", "512", "--json"]) == 0

    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    cases = {(r["order"], r["with_index"], r["mode"]) for r in records if r["part"] == "k_tail"}
    assert len(cases) == 5 * 2 * 2


@pytest.mark.parametrize("comm", ["collective", "symmetric"])
def test_cells_on_two_gpus_have_the_bytes_of_one(comm: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--model", "tiny", "--cp-size", "2", "--batches", "1", "--ranks", "process", "--device", "cuda", "--json"]

    assert main(["run", *arguments, "--comm", comm]) == 0

    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(r["layout"], r["kv_format"]) for r in reports] == [
        (layout, kv_format) for kv_format in ("bf16", "fp8") for layout in ("zigzag", "interleave")
    ]
    assert all(report["comm"] == comm for report in reports)
    assert all(report["kv_bytes_equal"] and report["output_equal"] for report in reports)
