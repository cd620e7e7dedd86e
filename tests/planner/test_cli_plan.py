"""`dsa-cp plan`: what it prints, and one line for what is wrong."""

import json
from pathlib import Path

import pytest

from dsa_contracts.dsa.codes import PlanError
from dsa_cp.cli import main
from dsa_cp.planner.backends import CAPABILITIES
from dsa_cp.planner.plan_files import plan_from_json
from tests.support.plans import plan

FP8_656 = ("--prefill-backend", "flashmla_kv", "--kv-format", "fp8_656")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Return exit code, standard output and standard error of `dsa-cp plan`."""
    code = main(["plan", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_default_is_the_case_of_29161_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys)
    assert (code, err) == (0, "")
    assert out.splitlines()[:7] == [
        "trtllm/fp8/rope_quantize_gather (prefill, zigzag, cp_size 4, replicated pool): K after each stage",
        "",
        "stage          rows    order       RoPE     dtype        strides     bytes per token  cost",
        "inputs         local   zigzag      raw      bf16 halves  UnitLast               1152  given",
        "rope_quantize  local   zigzag      rotated  fp8          Contiguous              576  own rows",
        "all_gather_kv  global  rank-major  rotated  fp8          Contiguous              576  wire",
        "write_kv       pool    slots       rotated  fp8          Contiguous              576  all rows",
    ]
    assert "gather          after rope_quantize: 576 bytes a token on the wire, K rotated, fp8\n" in out
    assert "cost            576 bytes a token on the wire, 1 pass over all rows, 1 pass over this rank's\n" in out
    assert "metadata        rank_major_loc, page_table, page_table_1, dsa_cache_seqlens_int32\n" in out


def test_json_is_the_plan_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--json", "--layout", "interleave")
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert plan_from_json(out) == plan(layout="interleave")


def test_explain_says_why_each_alternative_lost(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--explain")
    assert code == 0
    clash = "rope_quantize: k_nope holds Global[Sequence] rows, not Local[Zigzag]"
    assert f"lost  gather before rope_quantize: does not fit: {clash}\n" in out
    assert "rule  no idle stage: " in out
    assert "needs page_table_1: slot of each top-k entry" in out
    _, out, _ = run(capsys, *FP8_656, "--explain")
    assert "lost  rope_gather_quantize_rows: 1152 bytes a token on the wire, not 656\n" in out


def test_compare_says_where_and_why_upstream_differs(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *FP8_656, "--layout", "interleave", "--compare", "upstream")
    assert code == 0
    assert (
        "sglang 0.5.15: cheaper here (another placement, of fewer bytes or one rounding less); "
        "656 bytes a token on the wire; upstream gathers 1152\n"
        "  it decides  rope_gather_quantize_rows, fp8_656 rows: not fuse_rope: RoPE in the model, then the gather, then the "
        "cache write\n"
        "  source      models/deepseek_common/attention_forward_methods/forward_mla.py `_fuse_rope_for_trtllm_mla`, "
        "`_should_defer_dsa_cp_kv_gather`\n"
        "  note        the gather restores the order in a pass over all rows of its own; here the slots are permuted\n"
    ) in out
    code, out, _ = run(capsys, "--compare", "upstream", "--json")
    first, *others = [json.loads(line) for line in out.splitlines()]
    assert first["kind"] == "dsa-cp plan"
    assert [(other["with"], other["result"]) for other in others] == [
        ("sglang 0.5.15", "same"),
        ("sglang 0.5.23", "new here"),
    ]


def test_no_plan_is_exit_1_with_the_text_of_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PlanError) as caught:
        plan(layout="zigzag", kv_format="fp8_656")
    code, out, err = run(capsys, "--kv-format", "fp8_656")
    assert (code, out, err) == (1, "", f"dsa-cp: {caught.value}\n")
    code, out, err = run(capsys, "--kv-format", "fp8_656", "--json")
    assert (code, err) == (1, "")
    assert json.loads(out)["headline"] == "trtllm does not read fp8_656 rows in prefill"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ("--prefill-backend", "nsa"),
            f"prefill backend 'nsa' is not known; known are {', '.join(CAPABILITIES)}",
        ),
        (
            ("--layout", "striped"),
            (
                "layout is 'striped'; it must be one of "
                "zigzag, interleave, interleave(block=64) with any block, vllm_zigzag, vllm_replicated"
            ),
        ),
        (("--kv-format", "int8"), "row format 'int8' is not known; known are bf16, fp8, fp8_656"),
        (("--cp-size", "0"), "cp_size is 0; it must be at least 1"),
        (("--num-heads", "-1"), "num_heads is -1; it must be at least 1"),
        (("--capabilities", "/nothing.json"), "/nothing.json: cannot be read (No such file or directory)"),
    ],
)
def test_a_wrong_value_gets_one_line_and_exit_2(
    arguments: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, *arguments) == (2, "", f"dsa-cp: {line}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--pool", "split"),
        ("--phase", "verify"),
        ("--cp-size", "four"),
        ("--compare", "vllm"),
        ("--backend", "trtllm"),
        ("extra",),
    ],
)
def test_a_wrong_flag_gets_one_line_and_exit_2(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.endswith("; `dsa-cp --help` shows what is allowed\n")


def test_backends_of_a_file_are_planned_like_any_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "backends.json"
    reading = {
        "row_format": "bf16",
        "phases": ["prefill", "decode"],
        "query_dtypes": ["bf16"],
        "kv_scale": "one",
        "source": "s",
    }
    record = {"name": "mine", "kernel": "k", "reads": [reading], "context_parallel": {"value": ["prefill"], "source": "s"}}
    path.write_text(json.dumps({"backends": [record]}), encoding="utf-8")
    arguments = (
        "--capabilities",
        str(path),
        "--prefill-backend",
        "mine",
        "--kv-format",
        "bf16",
        "--json",
        "--compare",
        "upstream",
    )
    code, out, err = run(capsys, *arguments)
    made, first, _ = [json.loads(line) for line in out.splitlines()]
    assert (code, err, made["placement"]) == (0, "", "rope_gather")
    assert (first["result"], first["reason"]) == ("new here", "it has no backend mine")


def test_metadata_that_the_engine_lacks_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "--metadata", "rank_major_loc", "--metadata", "page_table")
    assert code == 1
    assert err.splitlines()[0] == (
        "dsa-cp: PlanError DSA304: trtllm needs page_table_1 in prefill with fp8 rows, the engine has none"
    )


def test_the_page_of_all_combinations_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--table")
    assert (code, err) == (0, "")
    assert out.startswith("# Plans\n")
