"""`dsa-cp review`: what it prints, what it returns, and how it refuses."""

import json
from pathlib import Path

import pytest

from dsa_cp.cli import main
from dsa_cp.tools.review.contract_facts import contract_facts
from dsa_cp.tools.review.lock import lock_text
from dsa_cp.tools.review.rules import RULES
from dsa_cp.tools.review.stage_catalogue import markdown
from dsa_cp.tools.stage_table import ROOT
from tests.support.edited_stubs import changed
from tests.support.houses import STUB, build

PLANS = ROOT / "examples" / "plans"
KNOWN = ", ".join(contract_facts().stages)
Output = pytest.CaptureFixture[str]


def run(capsys: Output, *args: object) -> tuple[int, str]:
    """The exit code, and what was printed; errors without the name of the program."""
    code = main(["review", *map(str, args)])
    captured = capsys.readouterr()
    return code, captured.out + captured.err.removeprefix("dsa-cp: ")


def test_the_order_before_29161_is_refused_with_the_stage_the_facts_that_clash_and_the_fix(capsys: Output) -> None:
    code, printed = run(capsys, "--check-plan", PLANS / "before-29161.json")
    lines = printed.splitlines()
    assert code == 1
    assert lines[:4] == [
        "PlanError DSA402: rope_quantize: k_nope holds Global[Sequence] rows, not Local[Zigzag]",
        "  stage     5 of 6, after split_kv",
        "  expected  k_nope: bf16[N kv_lora_rank] UnitLast, Local[L], Plain",
        "  got       k_nope: bf16[nnz kv_lora_rank] PackedRowStride, Global[Sequence], Plain, from split_kv",
    ]
    assert lines[4].startswith("  contract  dsa_contracts/stages/rope_quantize.py:")
    assert lines[5] == "  try       gather K after rope_quantize; q, K and positions are this rank's rows here"


def test_the_order_after_29161_passes(capsys: Output) -> None:
    path = PLANS / "after-29161.json"
    assert run(capsys, "--check-plan", path) == (
        0,
        f"{path}: fits: trtllm/fp8/rope_quantize_gather: rope_quantize, all_gather_kv, write_kv\n",
    )


def test_a_plan_is_judged_as_json(capsys: Output) -> None:
    code, printed = run(capsys, "--check-plan", PLANS / "before-29161.json", "--json")
    found = json.loads(printed)
    assert (code, found["verdict"], found["code"]) == (1, "refused", "DSA402")
    assert found["facts"][0] == ["stage", "5 of 6, after split_kv"]
    code, printed = run(capsys, "--check-plan", PLANS / "after-29161.json", "--json")
    assert (code, json.loads(printed)["verdict"]) == (0, "fits")


def test_contracts_are_compared_with_a_lock(tmp_path: Path, capsys: Output) -> None:
    lock = tmp_path / "lock.json"
    assert run(capsys, "--write-lock", lock) == (0, "")
    assert run(capsys, "--against", lock) == (0, f"contracts are those of {lock}\n")
    assert run(capsys, "--against", lock, "--locked", "--json") == (0, "")


def test_a_breaking_change_is_a_finding(tmp_path: Path, capsys: Output) -> None:
    lock = tmp_path / "lock.json"
    dense = "Ten[Local[L], Rotated, BF16, Contiguous, N, NumLocalHeads, QkRopeHeadDim]"
    edit = ("q_rope: QRope[L, Rotated, N]", f"q_rope: {dense}")
    lock.write_text(lock_text(changed("merge_q", edit)))
    line = (
        "breaking   merge_q.q_rope: strides Contiguous -> UnitLast; for implementations, kernel authors"
        " (compatible for callers)\n"
    )
    assert run(capsys, "--against", lock) == (1, f"{line}1 changes, 1 breaking\n")
    code, printed = run(capsys, "--against", lock, "--json")
    assert (code, json.loads(printed)) == (
        1,
        {
            "severity": "breaking",
            "where": "merge_q.q_rope",
            "what": "strides Contiguous -> UnitLast",
            "breaks": ["implementations", "kernel authors"],
            "fits": ["callers"],
        },
    )


def test_a_compatible_change_is_a_finding_where_the_lock_must_be_exact(tmp_path: Path, capsys: Output) -> None:
    lock = tmp_path / "lock.json"
    said = ("never subtract or divide in local space", "never in local space")
    lock.write_text(lock_text(changed("reorder_causal_lens", said)))
    line = "compatible reorder_causal_lens: advice for DSA117 is another; for readers of errors\n1 changes, 0 breaking\n"
    assert run(capsys, "--against", lock) == (0, line)
    assert run(capsys, "--against", lock, "--locked") == (
        1,
        f"{line}write the lock again where this is meant: dsa-cp review --write-lock {lock}\n",
    )


def test_the_catalogue_is_written_to_a_file(tmp_path: Path, capsys: Output) -> None:
    path = tmp_path / "contracts.md"
    assert run(capsys, "--format", "markdown", "--output", path) == (0, "")
    assert path.read_text() == markdown()
    code, printed = run(capsys, "--stage", "merge_q", "--stage", "pack_kv", "--json")
    assert (code, [json.loads(line)["name"] for line in printed.splitlines()]) == (0, ["merge_q", "pack_kv"])


def test_house_rules_are_applied_to_paths(tmp_path: Path, capsys: Output) -> None:
    root = build(tmp_path, src__dsa_cp__utils='"""Any."""\n')
    line = f"{root}/src/dsa_cp/utils.py:1:1 REV004 utils says nothing of what is in it; name it after that"
    assert run(capsys, "--self", root) == (1, f"{line}\n6 files, 1 findings\n")
    assert run(capsys, "--self", root / "tests") == (0, "1 files, 0 findings\n")
    code, printed = run(capsys, "--self", root, "--json")
    assert (code, [json.loads(text) for text in printed.splitlines()]) == (
        1,
        [
            {
                "path": f"{root}/src/dsa_cp/utils.py",
                "line": 1,
                "column": 1,
                "code": "REV004",
                "text": "utils says nothing of what is in it; name it after that",
            },
            {"files": 6, "findings": 1, "skipped": []},
        ],
    )


def test_rules_that_need_the_house_are_named_where_there_is_none(tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "plugin.py").write_text(STUB)
    skipped = "REV001, REV003, REV006, REV007, REV011, REV012, REV016, REV017"
    assert run(capsys, "--self", tmp_path) == (
        0,
        f"1 files, 0 findings\nnot applied, since the files stand in no house: {skipped}\n",
    )


def test_this_package_keeps_the_rules_that_it_applies(capsys: Output) -> None:
    tools = ROOT / "src" / "dsa_cp" / "tools" / "review"
    own = [tools, ROOT / "src" / "dsa_cp" / "cli" / "review_command.py", ROOT / "tests" / "tools" / "review"]
    code, printed = run(capsys, "--self", *own)
    assert (code, printed.partition(" files, ")[2]) == (0, "0 findings\n"), printed


def test_rules_are_explained(capsys: Output) -> None:
    code, printed = run(capsys, "--explain-rules")
    assert (code, printed.splitlines()[8:10]) == (
        0,
        [
            "REV004  nothing is called utils",
            "        what belongs nowhere collects there, and is found by nobody (any module)",
        ],
    )
    code, printed = run(capsys, "--explain-rules", "--json")
    assert [json.loads(line)["code"] for line in printed.splitlines()] == [rule.code for rule in RULES]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--probe", "--self"], "--self and --probe are different questions; ask one at a time"),
        (["src"], "PATHS goes with --self, not with the catalogue"),
        (["--probe", "--format", "text"], "--format goes with the catalogue, not with --probe"),
        (["--self", "--output", "x"], "--output goes with the catalogue, not with --self"),
        (["--self", "--stage", "attend"], "--stage goes with the catalogue or --probe, not with --self"),
        (["--locked"], "--locked goes with --against, not with the catalogue"),
        (["--json", "--format", "html"], "--json and --format html are two forms; ask for one"),
        (["--check-plan", "nowhere.json"], "nowhere.json: cannot be read (No such file or directory)"),
        (["--against", "nowhere.json"], "nowhere.json cannot be read: no such file or directory"),
        (["--format", "html", "--output", "/"], "/ is a folder; name a file in it"),
        (["--self", "nowhere"], "nowhere does not exist"),
        (
            ["--probe", "--stage", "nothing"],
            f"--stage 'nothing' is not known; known are {KNOWN}",
        ),
    ],
)
def test_misuse_is_one_line_and_exit_code_two(args: list[str], message: str, capsys: Output) -> None:
    assert run(capsys, *args) == (2, f"{message}\n")


@pytest.mark.parametrize("args", [["--format", "pdf"], ["--against"], ["--nothing"]])
def test_wrong_flags_are_one_line_and_exit_code_two(args: list[str], capsys: Output) -> None:
    code, printed = run(capsys, *args)
    assert (code, printed.count("\n")) == (2, 1), printed


def test_a_lock_of_a_newer_version_is_one_line(tmp_path: Path, capsys: Output) -> None:
    lock = tmp_path / "lock.json"
    lock.write_text(lock_text(contract_facts()).replace('"schema": 1', '"schema": 7'))
    message = f"{lock} is of a newer version, schema 7; this dsa-cp reads schema 1: update dsa-cp\n"
    assert run(capsys, "--against", lock) == (2, message)


@pytest.mark.parametrize("mode", ["production", "values"])
def test_the_probe_needs_checks_that_read_no_data(mode: str, monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    monkeypatch.setenv("DSA_CONTRACTS", mode)
    assert run(capsys, "--probe") == (2, f"--probe needs development mode; DSA_CONTRACTS is {mode}\n")


def test_a_plan_for_an_unknown_backend_is_one_line(tmp_path: Path, capsys: Output) -> None:
    plan = json.loads((PLANS / "after-29161.json").read_text())
    plan["options"]["prefill_backend"] = "nothing"
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    code, printed = run(capsys, "--check-plan", path)
    assert (code, printed.count("\n")) == (2, 1)
    assert printed.startswith("prefill backend 'nothing' is not known; known are trtllm, ")


def test_a_page_of_one_stage_can_be_written(tmp_path: Path, capsys: Output) -> None:
    path = tmp_path / "page.html"
    assert run(capsys, "--format", "html", "--stage", "merge_q", "--output", path) == (0, "")
    assert path.read_text().count("<article") == 1


def test_the_probe_of_a_stage_prints_a_line_and_what_reads_data(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    monkeypatch.delenv("DSA_CONTRACTS", raising=False)
    code, printed = run(capsys, "--probe", "--stage", "write_kv", "--stage", "merge_q")
    rows = [line.split() for line in printed.splitlines() if line.strip().startswith(("write_kv ", "merge_q "))]
    assert code == 0
    assert rows[0] == ["merge_q", "2", "fits", "not", "needed", "yes"]
    assert rows[1] == ["write_kv", "10", "reads", "data", "fits", "yes"]
    assert " ".join(rows[2][:3]) == "write_kv reads data:"
    code, printed = run(capsys, "--probe", "--stage", "merge_q", "--json")
    assert (code, [json.loads(line)["clean"] for line in printed.splitlines()]) == (0, [True, True])
