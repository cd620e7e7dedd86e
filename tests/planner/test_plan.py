"""A plan is data with reasons; one that does not fit cannot be constructed or loaded."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from dsa_contracts import ContractError
from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.dsa.codes import PlanError
from dsa_cp.layer.placements import PLACEMENTS
from dsa_cp.planner import Plan, make_plan
from dsa_cp.planner.attention_layer import quant_scale_of, route_of
from dsa_cp.planner.plan_files import plan_from_json, read_plan
from tests.support.plans import options, plan

BEFORE_29161 = ["pack_kv", "all_gather_kv", "restore_order", "split_kv", "rope_quantize", "write_kv"]
AFTER_29161 = ["rope_quantize", "all_gather_kv", "write_kv"]
OPTIONS = {"prefill_backend": "trtllm", "decode_backend": "trtllm", "layout": "zigzag", "kv_format": "fp8", "cp_size": 4}


def written(stages: list[str], **more: Any) -> str:
    """Return a plan as a person writes it."""
    return json.dumps({"options": OPTIONS, "stages": stages, **more})


def refused(text: str) -> str:
    """Return the text of the error that loading raises."""
    with pytest.raises(ContractError) as caught:
        plan_from_json(text)
    return str(caught.value)


def test_the_order_before_29161_does_not_load() -> None:
    lines = refused(written(BEFORE_29161)).splitlines()
    assert lines[0] == "PlanError DSA402: rope_quantize: k_nope holds Global[Sequence] rows, not Local[Zigzag]"
    assert lines[1] == "  stage     5 of 6, after split_kv"
    assert lines[-1] == "  try       gather K after rope_quantize; q, K and positions are this rank's rows here"


def test_the_order_after_29161_loads_as_the_plan_that_is_made() -> None:
    assert plan_from_json(written(AFTER_29161)) == plan(layout="zigzag")


def test_the_steps_of_that_plan_are_the_table_that_people_read() -> None:
    steps = [
        (step.stage, step.effect, step.rows, step.order, step.rope, step.dtype, step.strides, step.bytes_per_token)
        for step in plan(layout="zigzag").steps
    ]
    assert steps == [
        ("inputs", "given", "local", "zigzag", "raw", "bf16 halves", "UnitLast", 1152),
        ("rope_quantize", "own rows", "local", "zigzag", "rotated", "fp8", "Contiguous", 576),
        ("all_gather_kv", "wire", "global", "rank-major", "rotated", "fp8", "Contiguous", 576),
        ("write_kv", "all rows", "pool", "slots", "rotated", "fp8", "Contiguous", 576),
    ]


def test_fp8_656_is_gathered_after_quantisation() -> None:
    made = plan(backend="flashmla_kv", kv_format="fp8_656")
    assert made.cost.wire_bytes == 656
    assert made.gather_after == "quantize_rows"
    assert {item.placement: item.reason for item in made.rejected} == {
        "rope_quantize_rows_gather_write": "costs the same, and comes later by name",
        "rope_gather_quantize_rows": "1152 bytes a token on the wire, not 656",
        "gather_rope_quantize_rows": "1152 bytes a token on the wire, not 656",
    }


def test_the_rejected_order_of_29161_says_which_facts_clash() -> None:
    lost = {item.placement: item.reason for item in plan(layout="interleave").rejected}
    assert lost["gather before rope_quantize"] == (
        "does not fit: rope_quantize: k_nope holds Global[Sequence] rows, not Local[Interleave]"
    )


def test_ranks_that_reach_each_others_memory_gather_into_the_pools() -> None:
    made = plan(comm="symmetric")
    assert made.placement == "rope_quantize_gather_write"
    assert (made.cost.all_row_passes, made.cost.wire_bytes) == (0, 576)
    lost = {item.placement: item.reason for item in made.rejected}
    assert lost["rope_quantize_gather"] == "1 passes over all rows, not 0"


def test_one_rank_gathers_nothing_and_decode_neither() -> None:
    assert plan(cp_size=1).decided("gather").reason == "cp_size is 1: this rank has all rows, no byte is sent"
    assert plan(phase="decode").decided("gather").reason == "decode is not sharded: this rank has all rows, no byte is sent"
    assert plan(phase="decode").cost.wire_bytes == 0


def test_a_placement_can_be_asked_for_by_name() -> None:
    made = make_plan("torch_reference", "bf16", placement="gather_rope")
    assert made.placement == "gather_rope"
    assert made.decided("slots").value == "batch.out_cache_loc"
    assert made.rejected[0].reason.startswith("cheaper (1152 bytes a token on the wire, 1 pass over all rows, 2 passes")
    with pytest.raises(PlanError, match="there is no placement 'rope_last'"):
        make_plan("torch_reference", "bf16", placement="rope_last")
    with pytest.raises(PlanError, match="rope_gather does not fit trtllm"):
        make_plan("trtllm", "fp8", placement="rope_gather")


def test_a_plan_goes_through_json_and_back() -> None:
    made = plan(
        layout="interleave(block=64)",
        num_heads=64,
        metadata=("rank_major_loc", "page_table", "page_table_1", "dsa_cache_seqlens_int32"),
    )
    assert plan_from_json(made.model_dump_json()) == made
    assert Plan.model_validate_json(made.model_dump_json()) == made


def test_a_plan_that_does_not_fit_cannot_be_constructed() -> None:
    good = plan(layout="zigzag")
    fields = {name: getattr(good, name) for name in Plan.model_fields}
    with pytest.raises(PlanError, match="rope_quantize: k_nope holds"):
        Plan(**{**fields, "stages": tuple(BEFORE_29161)})
    with pytest.raises(PlanError, match="DSA401"):
        Plan(**{**fields, "options": options(layout="zigzag", kv_format="fp8_656")})
    assert Plan(**fields) == good


def test_a_plan_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        plan().placement = "rope_gather"


@pytest.mark.parametrize(
    ("field", "value", "headline"),
    [
        ("placement", "rope_gather", "placement: the plan says otherwise than its stages make it"),
        ("cost", {"wire_bytes": 1152, "all_row_passes": 1, "own_row_passes": 1}, "cost: the plan says otherwise than"),
        ("metadata", [], "metadata: the plan says otherwise than its stages make it"),
    ],
)
def test_a_field_that_contradicts_the_stages_is_refused(field: str, value: object, headline: str) -> None:
    assert refused(written(AFTER_29161, **{field: value})).startswith(f"PlanError DSA402: {headline}")


def test_the_difference_of_a_field_is_shown_and_no_more() -> None:
    data = json.loads(plan(layout="zigzag").model_dump_json())
    data["decisions"][3]["value"] = "one"
    assert refused(json.dumps(data)) == (
        "PlanError DSA402: decisions: the plan says otherwise than its stages make it\n"
        "  expected  kv_scale layer\n"
        "  got       kv_scale one\n"
        "  try       leave decisions out: it follows from options and stages"
    )


def test_reasons_in_other_words_load() -> None:
    data = json.loads(plan(layout="zigzag").model_dump_json())
    data["decisions"][0]["reason"] = "because"
    assert plan_from_json(json.dumps(data)).decided("gather").reason == "because"


def test_stages_that_fit_each_other_but_not_the_backend_are_refused() -> None:
    stages = ["apply_rope", "pack_kv", "all_gather_kv", "write_kv"]
    assert refused(written(stages)) == (
        "PlanError DSA402: rope_gather does not fit trtllm\n"
        "  because   it leaves bf16 rows in the pool, not fp8\n"
        "  try       `dsa-cp plan --explain` shows the placements that fit"
    )


def test_a_legal_sequence_without_a_function_loads_and_is_not_wired() -> None:
    made = plan_from_json(written(["rope_quantize", "all_gather_kv", "restore_order", "write_kv"]))
    assert made.placement == "rope_quantize+all_gather_kv+restore_order+write_kv"
    with pytest.raises(PlanError) as caught:
        route_of(made)
    assert str(caught.value) == (
        "PlanError DSA402: no function has the stages rope_quantize+all_gather_kv+restore_order+write_kv\n"
        f"  known     {', '.join(PLACEMENTS)}"
    )


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "plan: is no JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char 1))"),
        ("[]", "plan: is no plan; a plan is an object with options and stages"),
        ('{"kind": "lock"}', "plan: kind is 'lock'; a plan has kind 'dsa-cp plan', or none"),
        ('{"version": 2}', "plan: version 2 is newer than 1, the newest that is read here"),
        (
            '{"stage": []}',
            f"plan: stage is not a key of plans; those are {', '.join(Plan.model_fields)}",
        ),
        ("{}", "plan: prefill_backend: field required"),
        (written([], options={**OPTIONS, "cp": 2}), "plan: cp is not a key that is known here"),
        (written([], options={**OPTIONS, "cp_size": "4"}), "plan: cp_size: input should be a valid integer"),
        (
            json.dumps({"options": OPTIONS, "stages": "all"}),
            "plan: stages must be a list of stage names, as ['rope_quantize', 'all_gather_kv', 'write_kv']",
        ),
        (written(AFTER_29161, steps=[1]), "plan: steps.0: input should be an object"),
    ],
)
def test_a_text_that_is_no_plan_gets_one_line(text: str, fault: str) -> None:
    assert refused(text) == f"ArgumentError DSA602: {fault}"


def test_a_file_is_read_and_named_in_faults(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(written(AFTER_29161), encoding="utf-8")
    assert read_plan(path).placement == "rope_quantize_gather"
    path.write_text("3", encoding="utf-8")
    with pytest.raises(ArgumentError, match=f"{path}: is no plan"):
        read_plan(path)
    path.write_bytes(b"\xff")
    with pytest.raises(ArgumentError, match="cannot be read \\(not UTF-8\\)"):
        read_plan(path)
    with pytest.raises(ArgumentError, match="cannot be read \\(No such file or directory\\)"):
        read_plan(tmp_path / "nothing.json")


def test_rows_are_scaled_only_where_the_plan_has_a_scale_a_layer() -> None:
    assert quant_scale_of(plan(), 2.0) == 2.0
    assert quant_scale_of(plan(decode_backend="tilelang"), 2.0) == 1.0
    assert quant_scale_of(plan(backend="flashmla_kv", kv_format="fp8_656"), 2.0) == 1.0


def test_the_name_of_a_plan_is_what_ranks_compare() -> None:
    assert plan().name == "trtllm/fp8/rope_quantize_gather"
    assert plan(phase="decode", decode_backend="tilelang").name == "tilelang/fp8/rope_quantize_gather"


def test_the_indexers_key_may_ride_where_something_is_sent() -> None:
    assert plan().decided("index_key").reason == (
        "both keys are packed on this rank before the gather: one collective of 708 bytes a token would do; "
        "the path gathers each by itself"
    )
    shared = plan(comm="symmetric").decided("index_key")
    assert (shared.value, shared.reason) == (
        "rides with K's row",
        "both keys are packed on this rank before the gather: one collective of 708 bytes a token puts both into the pools",
    )
    assert plan(cp_size=1).decided("index_key").value == "not sent"
