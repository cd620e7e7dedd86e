"""The catalogue in its forms, and the documents that are made from it."""

import json
from pathlib import Path

import pytest

import dsa_contracts.stages as contracts
from dsa_contracts.core.errors import ArgumentError
from dsa_cp.tools.review.docstrings import parse_docstring, read_docstring
from dsa_cp.tools.review.fact_words import dim_words, variable_words
from dsa_cp.tools.review.rules import RULES
from dsa_cp.tools.review.stage_catalogue import json_lines, markdown, stage_views
from dsa_cp.tools.review.text import text
from dsa_cp.tools.stage_table import ROOT


def test_a_stage_as_text() -> None:
    shown = text(["restore_order"]).splitlines()
    assert shown[:10] == [
        "restore_order",
        "  Rows of the batch in sequence order; padding and further copies of replicated rows are gone.",
        "  takes     gathered  u8[nnz_gathered row_bytes]  Global[RankMajor[L]]  S  Contiguous",
        "            batch     CpBatch[L]",
        "  returns   restored  u8[nnz row_bytes]  Global[Sequence]  S  Contiguous",
        "  flow      gathered -> restored",
        "  ensures   rows_are_restored (DSA119; read in values mode): restored[i] is gathered[batch.restore_index[i]]",
        f"  raises    StageInputError: {' '.join(read_docstring(contracts.restore_order).raises['StageInputError'])}",
        "            StageOutputError: DSA119",
        "  row order sequence.",
    ]
    assert shown[-1].startswith("  contract  dsa_contracts/stages/restore_order.py:")


def test_a_stage_that_returns_nothing_says_so_and_a_collective_is_marked() -> None:
    assert "  returns   nothing\n" in text(["write_kv"])
    assert text(["all_gather_kv"]).startswith("all_gather_kv  (collective)\n")


def test_the_catalogue_has_every_stage_once() -> None:
    assert [view.facts.name for view in stage_views()] == list(contracts.__all__)
    assert [json.loads(line)["name"] for line in json_lines().splitlines()] == list(contracts.__all__)


def test_every_parameter_and_result_of_every_stage_is_explained() -> None:
    for view in stage_views():
        assert view.doc.summary, view.facts.name
        assert view.doc.source, view.facts.name
        assert [param.name for param in view.facts.params if not view.meaning(param.name)] == []
        assert [item.name for item in view.facts.returns if not view.meaning(item.name, is_return=True)] == []
        assert {"Row order", "Aliasing", "Sync"} <= set(view.doc.facts), view.facts.name


def test_every_word_is_explained() -> None:
    assert [word.name for word in (*dim_words(), *variable_words()) if not word.meaning] == []


def test_json_holds_facts_and_what_the_docstring_says() -> None:
    (found,) = map(json.loads, json_lines(["merge_q"]).splitlines())
    assert found["params"][1] == {
        "name": "q_rope",
        "tensor": {
            "rows": "Local[L]",
            "state": "Rotated",
            "dtype": "bf16",
            "strides": "UnitLast",
            "dims": ["N", "num_local_heads", "qk_rope_head_dim"],
        },
        "type": "",
        "is_optional": False,
    }
    assert found["doc"]["args"]["q_rope"] == "rotated rope part."
    assert found["ensures"][0]["name"] == "widths_add_up"


def test_the_catalogue_in_the_documents_is_the_one_that_the_contracts_make() -> None:
    assert (ROOT / "docs" / "contracts.md").read_text(encoding="utf-8") == markdown()


def test_the_rules_in_the_documents_are_those_that_are_applied() -> None:
    shown = (ROOT / "docs" / "review.md").read_text(encoding="utf-8")
    table = shown.partition("<!-- rules: begin -->\n")[2].partition("<!-- rules: end -->")[0]
    rows = [f"| {rule.code} | {rule.title} | {rule.why} | {'yes' if rule.needs_house else ''} |\n" for rule in RULES]
    assert table == "| code | what holds | why | house only |\n| --- | --- | --- | --- |\n" + "".join(rows)


def test_an_unknown_stage_is_one_line() -> None:
    with pytest.raises(ArgumentError) as error:
        stage_views(["restore"])
    assert error.value.headline == f"--stage 'restore' is not known; known are {', '.join(contracts.__all__)}"


DOCSTRING = """Rows are moved,
all of them.

More about it.

Args:
    x: rows, with
        strides: any.
    batch: the batch.

Returns:
    moved: the rows.
    count: how many.

Row order: that of `x`. Aliasing: views
of `x`. Sync: none. Rounding: none.

Raises:
    StageInputError: DSA102 to DSA104, DSA112.
    StageOutputError: DSA202.

Source: paper, page 3;
    program 1.0.
"""


def test_a_docstring_is_read_part_by_part() -> None:
    doc = parse_docstring(DOCSTRING)
    assert doc.summary == "Rows are moved, all of them."
    assert doc.args == {"x": "rows, with strides: any.", "batch": "the batch."}
    assert doc.returns == {"moved": "the rows.", "count": "how many."}
    assert doc.raises == {"StageInputError": ("DSA102", "DSA103", "DSA104", "DSA112"), "StageOutputError": ("DSA202",)}
    assert doc.facts == {"Row order": "that of `x`.", "Aliasing": "views of `x`.", "Sync": "none.", "Rounding": "none."}
    assert doc.source == "paper, page 3; program 1.0."


def test_a_docstring_with_one_return_value_and_one_without_parts() -> None:
    assert parse_docstring("Do.\n\nReturns:\n    The rows, of\n    the batch.\n").returns == {"": "The rows, of the batch."}
    empty = parse_docstring("")
    assert (empty.summary, empty.args, empty.returns, empty.raises, empty.facts, empty.source) == ("", {}, {}, {}, {}, "")


def test_the_examples_of_plans_are_files_of_the_repository() -> None:
    folder = Path(ROOT / "examples" / "plans")
    assert sorted(path.name for path in folder.glob("*29161.json")) == ["after-29161.json", "before-29161.json"]
