"""Backends from files: validated, named in faults, unknown where they say nothing."""

import json
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from dsa_contracts.core.errors import ArgumentError
from dsa_cp.planner.backends import CAPABILITIES, Capability, Cited, IntRule
from dsa_cp.planner.capabilities import UNKNOWN, read_capabilities
from tests.support.plans import plan, refusal

READS = [
    {
        "row_format": "fp8_656",
        "phases": ["prefill", "decode"],
        "query_dtypes": ["bf16"],
        "kv_scale": "rows",
        "source": "its manual",
    }
]
RECORD: dict[str, Any] = {"name": "mine", "kernel": "lib `attend`", "reads": READS}
CP = {"value": ["prefill"], "source": "its manual"}


def file_of(tmp_path: Path, *records: object) -> Path:
    """Return a JSON file with records."""
    path = tmp_path / "backends.json"
    path.write_text(json.dumps({"backends": list(records)}), encoding="utf-8")
    return path


def test_a_backend_from_a_file_is_planned_like_any_other(tmp_path: Path) -> None:
    known = read_capabilities(file_of(tmp_path, {**RECORD, "context_parallel": CP}))
    made = plan(known, backend="mine", kv_format="fp8_656")
    assert made.name == "mine/fp8_656/rope_quantize_rows_gather"
    assert list(known) == [*CAPABILITIES, "mine"]


def test_what_a_file_leaves_out_is_unknown_and_does_no_harm(tmp_path: Path) -> None:
    known = read_capabilities(file_of(tmp_path, RECORD))
    mine = known["mine"]
    assert mine.zero_length_rows == Cited(value=False, source=UNKNOWN)
    assert mine.lse == Cited("not returned", UNKNOWN)
    assert mine.halves_strides == Cited("Contiguous", UNKNOWN)
    assert refusal(known, backend="mine", kv_format="fp8_656").splitlines()[0] == (
        "PlanError DSA401: mine does not declare context parallelism in prefill"
    )


def test_toml_and_json_give_the_same_record(tmp_path: Path) -> None:
    path = tmp_path / "backends.toml"
    path.write_text(
        """
        [[backends]]
        name = "mine"
        kernel = "lib `attend`"
        rotates = [{row_format = "fp8", fused_with = "cache write", can_bypass = true, source = "s"}]
        needs = [{field = "plan", purpose = "p", source = "s", phases = ["decode"]}]
        topk_widths = {value = [{low = 64, multiple_of = 64}], source = "s"}
        [[backends.reads]]
        row_format = "fp8_656"
        phases = ["prefill", "decode"]
        query_dtypes = ["bf16"]
        kv_scale = "rows"
        source = "its manual"
        """,
        encoding="utf-8",
    )
    record = {
        **RECORD,
        "rotates": [{"row_format": "fp8", "fused_with": "cache write", "can_bypass": True, "source": "s"}],
        "needs": [{"field": "plan", "purpose": "p", "source": "s", "phases": ["decode"]}],
        "topk_widths": {"value": [{"low": 64, "multiple_of": 64}], "source": "s"},
    }
    assert read_capabilities(path)["mine"] == read_capabilities(file_of(tmp_path, record))["mine"]
    assert read_capabilities(path)["mine"].topk_widths.value == (IntRule(64, multiple_of=64),)


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        (3, "backends[0] is no table"),
        ({"name": "mine", "reads": []}, "backends[0]: kernel: field required"),
        ({**RECORD, "rope": True}, "backends[0]: rope is not a key that is known here"),
        ({**RECORD, "page_sizes": {"value": [64]}}, "backends[0]: page_sizes.value.0: input should be an object"),
        (
            {**RECORD, "lse": {"value": "yes", "source": ""}},
            "backends[0]: lse.value: input should be 'not returned', 'returned' or 'returned, -inf for empty rows'",
        ),
        ({**RECORD, "name": "trtllm"}, "backends[0]: trtllm is a backend already; choose another name"),
        (
            {**RECORD, "reads": [{**READS[0], "row_format": "int4"}]},
            "backends[0]: row format 'int4' is not known; known are bf16, fp8, fp8_656",
        ),
        ({**RECORD, "reads": [{**READS[0], "colour": 1}]}, "backends[0]: reads.0.colour is not a key that is known here"),
        (
            {**RECORD, "zero_length_rows": {"value": "no", "source": ""}},
            "backends[0]: zero_length_rows.value: input should be a valid boolean",
        ),
    ],
)
def test_a_fault_of_a_record_gets_one_line(tmp_path: Path, record: object, fault: str) -> None:
    path = file_of(tmp_path, record)
    with pytest.raises(ArgumentError) as caught:
        read_capabilities(path)
    assert caught.value.headline == f"{path}: {fault}"


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("a.json", "{", "is no JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char 1))"),
        ("a.toml", "x =", "is no TOML (Invalid value (at end of document))"),
        ("a.json", "[]", "must hold one list, backends, of capability records"),
        ("a.json", '{"backends": [], "more": 1}', "must hold one list, backends, of capability records"),
    ],
)
def test_a_file_that_holds_no_records_gets_one_line(tmp_path: Path, name: str, text: str, fault: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ArgumentError) as caught:
        read_capabilities(path)
    assert caught.value.headline == f"{path}: {fault}"


def test_one_file_does_not_name_a_backend_twice(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="backends\\[1\\]: mine is a backend already"):
        read_capabilities(file_of(tmp_path, RECORD, RECORD))


def facts_of(capability: Capability) -> dict[str, Cited[object]]:
    """Return every fact of a capability by name."""
    hints = get_type_hints(Capability)
    return {name: getattr(capability, name) for name, hint in hints.items() if get_origin(hint) is Cited}


@pytest.mark.parametrize("name", CAPABILITIES)
def test_every_fact_of_a_backend_has_its_source(name: str) -> None:
    capability = CAPABILITIES[name]
    assert len(facts_of(capability)) == 10
    assert all(fact.source for fact in facts_of(capability).values())
    sources = [way.source for way in capability.reads] + [way.source for way in capability.rotates]
    assert all([*sources, *(need.source for need in capability.needs)])


@pytest.mark.parametrize("name", CAPABILITIES)
def test_an_unknown_fact_has_the_value_that_does_no_harm(name: str) -> None:
    harmless = {"zero_length_rows": False, "lse": "not returned", "halves_strides": "Contiguous"}
    for field, fact in facts_of(CAPABILITIES[name]).items():
        if fact.source.startswith("unknown"):
            assert fact.value == harmless.get(field, ()), field


def test_rules_for_numbers_say_what_they_admit() -> None:
    assert IntRule(64, 64).describe() == "64"
    assert IntRule(1, 64, divides=64).describe() == "a divisor of 64 from 1 to 64"
    assert IntRule(16, 128, multiple_of=16).describe() == "a multiple of 16 from 16 to 128"
    assert IntRule().describe() == "any"
    assert [n for n in range(1, 70) if IntRule(1, 64, divides=64).admits(n)] == [1, 2, 4, 8, 16, 32, 64]


def test_literals_of_a_record_are_the_words_of_the_planner() -> None:
    hints = get_type_hints(Capability)
    assert get_args(get_args(hints["lse"])[0]) == ("not returned", "returned", "returned, -inf for empty rows")
