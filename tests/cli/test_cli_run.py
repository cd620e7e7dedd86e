"""`dsa-cp run`: what it prints, what it returns, and how it refuses."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dsa_cp.cli import main

SMALL = ["run", "--model", "tiny", "--layers", "1", "--batches", "1", "--chunk-tokens", "96", "--cp-size", "2"]


def trace_file(folder: Path, *lines: str) -> Path:
    """Write a trace file and return its path."""
    path = folder / "trace.jsonl"
    path.write_text("".join(line + "\n" for line in lines))
    return path


def test_the_four_cells_are_printed_with_the_gather_and_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(SMALL) == 0
    out = capsys.readouterr().out
    assert out.startswith("2 ranks against one rank: model tiny, 1 layer(s)")
    gathers = [line for line in out.splitlines() if line.startswith("gather: ")]
    assert [line.split()[1] for line in gathers] == ["bf16,", "fp8,"]
    assert gathers[1].startswith("gather: fp8, after rope_quantize: trtllm")
    assert out.splitlines()[-1].startswith("unknown: 0 arguments")


def test_json_prints_one_object_a_cell_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--json"]) == 0
    captured = capsys.readouterr()
    cells = [json.loads(line) for line in captured.out.splitlines()]
    assert [(cell["layout"], cell["kv_format"]) for cell in cells] == [
        ("zigzag", "bf16"),
        ("interleave", "bf16"),
        ("zigzag", "fp8"),
        ("interleave", "fp8"),
    ]
    assert all(cell["kv_bytes_equal"] and cell["output_equal"] and cell["tokens"] == 96 for cell in cells)
    assert captured.err == ""


def test_a_trace_file_layouts_and_formats_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = trace_file(tmp_path, '{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [7]}')
    flags = ["--trace", str(path), "--layout", "vllm_zigzag", "--layout", "interleave(block=2)", "--kv-format", "fp8_656"]
    assert main([*SMALL, *flags, "--json"]) == 0
    cells = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(cell["layout"], cell["kv_format"], cell["tokens"]) for cell in cells] == [
        ("vllm_zigzag", "fp8_656", 5),
        ("interleave(block=2)", "fp8_656", 5),
    ]


def test_break_list_names_the_breakages_one_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--break", "list"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names[:3] == ["gather-early", "rank-major-order", "identity-lens"]
    assert main(["run", "--break", "list", "--json"]) == 0
    assert [json.loads(line)["name"] for line in capsys.readouterr().out.splitlines()] == names


def test_break_shows_the_harm_and_the_refusal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--break", "identity-lens", "--layout", "zigzag", "--json"]) == 0
    (report,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert report["code"] == "DSA117"
    assert report["refused_in"] == "values"
    assert report["output_error"] > 0.1
    assert report["refusal"].startswith("select_topk: causal_lens[24] is 25, for row ")


REFUSALS = {
    ("--cp-size", "0"): "dsa-cp: --cp-size is 0; it must be at least 1",
    ("--cp-size", "-3"): "dsa-cp: --cp-size is -3; it must be at least 1",
    ("--cp-size", "65"): "dsa-cp: --cp-size is 65; this machine runs up to 64 ranks",
    ("--layers", "0"): "dsa-cp: --layers is 0; it must be at least 1",
    ("--batches", "-1"): "dsa-cp: --batches is -1; it must be at least 0",
    ("--kv-format", "fp4"): "dsa-cp: --kv-format 'fp4' is not known; known are bf16, fp8, fp8_656",
    ("--device", "tpu"): "dsa-cp: --device 'tpu' is not known; known are cpu, cuda",
    ("--kernels", "cutlass"): (
        "dsa-cp: --kernels 'cutlass' is not known; known are torch, triton, flash_mla, flashinfer, trtllm"
    ),
    ("--kernels", "triton"): "dsa-cp: --kernels triton with --device cpu: needs compute capability 9.0 and newer, got cpu",
    ("--model", "llama"): "dsa-cp: model 'llama' is not known; known are default, deepseek-v3.2, glm-5, tiny",
    ("--layout", "ring"): (
        "dsa-cp: layout is 'ring'; it must be one of "
        "zigzag, interleave, interleave(block=64) with any block, vllm_zigzag, vllm_replicated"
    ),
    ("--break", "everything"): (
        "dsa-cp: --break 'everything' is not known; known are gather-early, rank-major-order, identity-lens, "
        "rank-positions, other-layout, rope-twice, and list"
    ),
}


@pytest.mark.parametrize("flags", REFUSALS, ids=" ".join)
def test_a_wrong_value_gets_one_line_and_exit_2(flags: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, *flags]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == REFUSALS[flags] + "\n"


@pytest.mark.parametrize(
    ("arguments", "start"),
    [
        (["run", "--cp-size", "two"], "dsa-cp: Invalid value for '--cp-size'"),
        (["run", "--cp", "2"], "dsa-cp: No such option: --cp"),
        (["go"], "dsa-cp: No such command 'go'"),
        (["run", "--ranks", "fiber"], "dsa-cp: Invalid value for '--ranks'"),
    ],
)
def test_a_wrong_word_gets_one_line_and_exit_2(arguments: list[str], start: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(start)
    assert captured.err.count("\n") == 1


def test_a_bad_trace_line_is_named_with_file_line_and_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = trace_file(
        tmp_path,
        '{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [7]}',
        '{"timestamp": 0, "input_length": -5, "output_length": 1, "hash_ids": [7]}',
    )
    assert main([*SMALL, "--trace", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        f"dsa-cp: {path}:2: input_length: found -5, expected an integer of at least 1; fix it or remove the line\n"
    )


def test_a_breakage_needs_one_process_and_development_mode(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main([*SMALL, "--break", "identity-lens", "--ranks", "process"]) == 2
    assert capsys.readouterr().err == (
        "dsa-cp: --break switches checks off and on in one process; leave out --ranks process\n"
    )
    assert main([*SMALL, "--break", "identity-lens", "--comm", "symmetric"]) == 2
    assert capsys.readouterr().err == ("dsa-cp: --break runs orders of a collective; leave out --comm\n")
    monkeypatch.setenv("DSA_CONTRACTS", "production")
    assert main([*SMALL, "--break", "identity-lens"]) == 2
    assert capsys.readouterr().err == (
        "dsa-cp: --break compares checks off, development and values; leave DSA_CONTRACTS unset\n"
    )


def test_a_wrong_mode_is_told_in_one_line() -> None:
    environment = {**os.environ, "DSA_CONTRACTS": "fast", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-m", "dsa_cp", "run"], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        "dsa-cp: DSA_CONTRACTS is 'fast'; expected development, values, production; try unset DSA_CONTRACTS\n",
    )


def test_without_arguments_the_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("run", "plan", "review", "prove", "bench"))


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--help"]) == 0
    assert "Example: dsa-cp run --trace requests.jsonl --cp-size 4 --layers 2 --json" in capsys.readouterr().out
