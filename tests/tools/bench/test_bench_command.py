"""`dsa-cp bench` where there is no GPU: what runs, what is refused, and what records look like."""

import json
from pathlib import Path

import pytest
import torch

from dsa_cp.cli import main
from dsa_cp.cli.bench_tables import print_report
from dsa_cp.tools.bench.files import read_results, write_results
from dsa_cp.tools.bench.measure import timing_of
from dsa_cp.tools.bench.suite import slowest

without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="says what is refused without a CUDA device")


@without_gpu
def test_it_is_refused_in_one_line_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench"]) == 2
    assert capsys.readouterr() == (
        "",
        "dsa-cp: no CUDA device: modes, stages, k_tail need one; --cpu runs check, host\n",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--part", "speed"], "--part 'speed' is not known; known are check, host, modes, stages, k_tail"),
        (["--part", "k_tail", "--cpu"], "--cpu leaves out k_tail; without a GPU there are check, host"),
        (["--rows", "7"], "--rows is 7; it must be an even number of at least 2"),
    ],
)
def test_a_wrong_value_is_refused_in_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *arguments]) == 2
    assert capsys.readouterr().err == f"dsa-cp: {message}\n"


def test_the_check_part_measures_every_stage_in_every_way_that_is_installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "--part", "check", "--cpu", "--json", "--out", str(tmp_path)]) == 0

    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    records = read_results(tmp_path / "results.jsonl")
    assert printed == records
    assert records[0]["part"] == "run"
    assert {"commit", "date", "machine", "versions"} <= set(records[0])
    timed = {(record["stage"], record["way"]) for record in records if "median_us" in record}
    names = {record["stage"] for record in records if record["part"] == "check"}
    assert {"rope_quantize", "all_gather_kv", "write_kv", "attend", "select_topk"} <= names
    for way in ("remembered", "hand-written asserts", "jaxtyping + beartype"):
        assert {stage for stage, found in timed if found == way} == names


def test_a_timing_is_the_median_with_its_tenths() -> None:
    timing = timing_of([float(value) for value in range(20, -1, -1)])

    assert (timing.median_us, timing.p10_us, timing.p90_us, timing.repetitions) == (10.0, 2.0, 18.0, 21)


def test_of_each_record_the_slowest_rank_speaks() -> None:
    ranks: list[list[dict[str, object]]] = [
        [{"part": "bandwidth"}, {"order": "a", "median_us": 2.0}],
        [{"part": "bandwidth"}, {"order": "a", "median_us": 3.0}],
    ]

    assert slowest(ranks) == [{"part": "bandwidth"}, {"order": "a", "median_us": 3.0}]


def test_plots_are_drawn_from_records(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    case = {"part": "k_tail", "order": "push", "floor_us": 1.0, "median_us": 2.0, "p10_us": 1.0, "p90_us": 3.0}
    records: list[dict[str, object]] = [
        {**case, "rows": rows, "with_index": with_index, "mode": mode}
        for rows in (512, 2048)
        for with_index in (False, True)
        for mode in ("graph", "eager")
    ]

    written = write_results(records, tmp_path)

    assert [path.name for path in written] == ["results.jsonl", "k_tail.png", "k_tail.svg"]


def test_stages_are_drawn_and_tabled_with_what_each_is_compared_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    case = {"part": "stage", "stage": "rope_quantize", "case": "1024 tokens x 128 heads", "bytes": 8, "operations": 0}
    times = {"median_us": 2.0, "p10_us": 1.0, "p90_us": 3.0, "floor_us": 1.6}
    records: list[dict[str, object]] = [
        {"part": "copy", "local_gb_s": 4240.0},
        {**case, **times, "implementation": "triton", "ratio": 1.25},
        {**case, **times, "implementation": "flashinfer", "ratio": 1.5},
        {**case, **times, "stage": "attend", "implementation": "triton", "operations": 4e9, "ratio": 9.0},
    ]
    assert [path.name for path in write_results(records, tmp_path)] == ["results.jsonl", "stages.png", "stages.svg"]
    print_report(records)
    shown = capsys.readouterr().out
    assert "4240 GB/s" in shown
    assert [line.split()[-1] for line in shown.splitlines() if "attend" in line] == ["2000"]


def test_results_that_cannot_be_written_are_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["bench", "--part", "check", "--cpu", "--out", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err == f"dsa-cp: {tmp_path / 'file'} cannot be made a folder: file exists\n"


@without_gpu
def test_a_run_that_is_refused_makes_no_folder(tmp_path: Path) -> None:
    assert main(["bench", "--part", "stages", "--out", str(tmp_path / "new")]) == 2
    assert not (tmp_path / "new").exists()
