"""`dsa-cp prove`: what it prints, and how it ends."""

import json
import re
import subprocess
import sys

import pytest

from dsa_cp.cli import main
from dsa_cp.tools.prove.wrong import VARIANTS

PAD_TEXT = """\
pad_target_is_least is false: zigzag, 2 ranks, 2 requests
  lens      extend [1, 1], prefix [0, 0], padded [1, 1], row_alignment 1
  rank 0    request 0: 0 | request 1: 0
  no rows   on rank 1
  at        rank 0
  says      nnz_padded: 1
  right     at least 2
  formula   nnz_padded = ceil(tokens / cp_size)
  instead   the rows of the fullest rank: remainders of several requests pile up on the same ranks
  source    B09, sgl-project/sglang#23269
"""

BORDERS_TEXT = """\
restore_is_bijection is false: vllm_zigzag, 2 ranks, 2 requests
  lens      extend [3, 4], prefix [0, 0], padded [4, 4], row_alignment 1
  rank 0    request 0: 0 | request 0: _ | request 1: 0 | request 1: 3
  rank 1    request 0: 1 | request 0: 2 | request 1: 1 | request 1: 2
  at        rank 0
  says      first place of the head chunk of request 1: 1
  right     2
  formula   a request's first place = (real tokens before it) // cp_size, where padded lengths were cut
  instead   the rows of the rank's chunks before it, engine padding included
  source    B43, NVIDIA/Megatron-LM#4495
"""

REPLICAS_TEXT = """\
rows_have_one_writer is false: vllm_replicated, 3 ranks, 1 request
  lens      extend [1], prefix [0], padded [1], row_alignment 1
  rank 0    request 0: 0
  rank 1    request 0: 0 (copy, not written)
  rank 2    request 0: 0 (copy, not written)
  at        request 0, token 0
  says      copies of the token that are written: 3
  right     1
  formula   every rank writes its copy of a replicated request
  instead   rank 0 writes it for all ranks
  source    vLLM 0.33, replicated_requests of pcp_manager.py
"""


def run(*arguments: str) -> int:
    return main(["prove", *arguments])


def test_what_is_proven_is_a_table_with_what_it_covers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "81")
    assert run("--cp-size", "2", "--cp-size", "3", "--layout", "zigzag", "--layout", "interleave(block=4)") == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert [re.sub(r" +[0-9.]+$", "", line) for line in lines[4:15]] == [
        "code_fits_formulas     all                   2 3       sampled    matched",
        "rows_have_one_writer   all                   2 3       any        proven",
        "restore_is_bijection   all                   2 3       1 2 3      proven",
        "pad_target_is_least    all                   2 3       any        proven",
        "rank_lens_count_rows   all                   2 3       1 2 3      proven",
        "positions_match_rows   all                   2 3       1 2 3      proven",
        "slots_written_once     all                   2 3       any        proven",
        "chunks_are_mirrored    zigzag                2 3       any        proven",
        "stages_fit             all                   2 3       any        proven",
        "local_lens_add_up      interleave(block=4)   2 3       any        proven",
        "",
    ]
    assert re.fullmatch(r"[0-9,]+ goals in [0-9.]+ s", lines[15])
    assert lines[16:] == [
        "sampled: 204 batches, whose segments and index tensors were compared with the formulas proven",
        "lengths: any extend >= 1, any prefix >= 0, any engine padding behind each request, any row_alignment >= 1",
        "requests: 'any' is proven for one request among any others; numbers are batches of so many requests",
        "blocks: interleave(block=4); formulas are not linear in the block, so each block is a proof of its own",
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--variant", "pad_ceil_nnz", "--layout", "zigzag", "--cp-size", "2"), PAD_TEXT),
        (("--variant", "borders_from_real_lens", "--cp-size", "2"), BORDERS_TEXT),
        (("--variant", "replicas_all_write", "--cp-size", "4", "--cp-size", "3"), REPLICAS_TEXT),
    ],
)
def test_a_counter_example_can_be_checked_by_hand(
    arguments: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 1
    assert capsys.readouterr().out.endswith("\n\n" + text)


def test_a_variant_that_is_right_on_a_layout_is_proven_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--variant", "pad_ceil_nnz", "--layout", "interleave", "--cp-size", "2") == 0
    assert "is false" not in capsys.readouterr().out


def test_json_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--variant", "uniform_rank_lens", "--layout", "zigzag", "--cp-size", "2", "--requests", "1", "--json") == 1
    (line,) = capsys.readouterr().out.splitlines()
    record = json.loads(line)
    assert record.pop("seconds") > 0
    assert record == {
        "obligation": "rank_lens_count_rows",
        "layout": "zigzag",
        "cp_size": 2,
        "requests": 1,
        "outcome": "refuted",
        "goals": 10,
        "counterexample": {
            "extend_lens": [1],
            "prefix_lens": [0],
            "padded_lens": [1],
            "row_alignment": 1,
            "about": "rank 0",
            "values": {},
            "what": "nnz_local",
            "says": 0,
            "relation": "=",
            "right": 1,
            "decodes": [],
        },
        "open_goal": "",
    }


def test_no_time_is_unknown_and_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--layout", "zigzag", "--cp-size", "2", "--requests", "1", "--timeout", "1e-9") == 1
    out = capsys.readouterr().out
    assert "rows_have_one_writer   zigzag    2         1          unknown" in out
    assert "open: rows_have_one_writer, zigzag, 2 ranks, 1 request: request 0, after 0.0 s" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--layout", "spiral"),
            (
                "layout is 'spiral'; it must be one of "
                "zigzag, interleave, interleave(block=64) with any block, vllm_zigzag, vllm_replicated"
            ),
        ),
        (("--variant", "pad"), f"variant 'pad' is not known; known are {', '.join(VARIANTS)}"),
        (
            ("--variant", "replicas_all_write", "--layout", "zigzag"),
            "variant replicas_all_write is about vllm_replicated; --layout is zigzag",
        ),
        (("--cp-size", "1"), "--cp-size is 1; it must be in 2..16"),
        (("--cp-size", "4", "--cp-size", "17"), "--cp-size is 17; it must be in 2..16"),
        (("--requests", "0"), "--requests is 0; it must be in 1..3"),
        (("--requests", "4"), "--requests is 4; it must be in 1..3"),
        (("--timeout", "0"), "--timeout is 0.0; it must be above 0 seconds"),
        (("--timeout", "nan"), "--timeout is nan; it must be above 0 seconds"),
    ],
)
def test_misuse_is_one_line_and_code_2(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments) == 2
    assert capsys.readouterr() == ("", f"dsa-cp: {message}\n")


def test_variants_are_listed_with_what_is_wrong_and_where_it_was_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--variant", "list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(VARIANTS)
    assert lines[0] == "pad_ceil_nnz              nnz_padded = ceil(tokens / cp_size) (B09, sgl-project/sglang#23269)"
    assert run("--variant", "list", "--json") == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert records[0] == {
        "name": "pad_ceil_nnz",
        "formula": "nnz_padded = ceil(tokens / cp_size)",
        "right": "the rows of the fullest rank: remainders of several requests pile up on the same ranks",
        "source": "B09, sgl-project/sglang#23269",
        "breaks": "pad_target_is_least",
        "layouts": ["zigzag", "vllm_zigzag", "vllm_replicated", "interleave(block=16)", "interleave(block=64)"],
    }


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    assert "Example: dsa-cp prove --cp-size 4 --layout zigzag" in capsys.readouterr().out


def test_without_z3_the_command_says_which_extra_to_install() -> None:
    code = "import sys; sys.modules['z3'] = None; from dsa_cp.cli import main; sys.exit(main(['prove', '--cp-size', '2']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=_environment())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "dsa-cp: proofs need z3: pip install 'dsa-contracts[prove]'\n"


def test_z3_is_not_imported_before_it_is_needed() -> None:
    code = "import sys; from dsa_cp.cli import main; main(['prove', '--variant', 'list']); sys.exit('z3' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=_environment())
    assert done.returncode == 0


def _environment() -> dict[str, str]:
    return {"PYTHONPATH": ":".join(path for path in sys.path if path)}
