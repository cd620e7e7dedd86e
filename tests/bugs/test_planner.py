"""B03, B10, B26, B29: what must be decided or refused at start-up, from what a backend can do and not from its name."""

from dataclasses import replace
from typing import Any

import pytest

from dsa_contracts.dsa.codes import BatchError, PlanError
from dsa_contracts.dsa.states import Rotated
from dsa_cp.layer.setting import rank_major_loc
from dsa_cp.layouts import Interleave, build_batches
from dsa_cp.planner import Plan, PlanOptions, plan_for
from dsa_cp.planner.backends import CAPABILITIES, Cited
from tests.support.branded import RANK, ROPE, batches, local, normal
from tests.support.stage_calls import call, refusal, refused, valid_args


def plan(backend: str, kv_format: str, known: Any = CAPABILITIES, **options: Any) -> Plan:
    names = {"prefill_backend": backend, "decode_backend": backend, "kv_format": kv_format}
    return plan_for(PlanOptions(**{**names, "cp_size": 8, **options}), known)


def test_b03_k_is_gathered_behind_the_rotation_wherever_that_is() -> None:
    gathers_after = {
        ("trtllm", "fp8"): "rope_quantize",
        ("trtllm", "bf16"): "apply_rope",
        ("aiter", "fp8"): "rope_quantize",
        ("aiter", "bf16"): "apply_rope",
    }
    assert {question: plan(*question).gather_after for question in gathers_after} == gathers_after


def test_b03_a_backend_of_any_name_that_rotates_inside_gets_the_same_plan() -> None:
    other = replace(CAPABILITIES["trtllm"], name="another")
    found, known = plan("another", "fp8", {"another": other}), plan("trtllm", "fp8")
    assert (found.stages, found.gather_after) == (known.stages, known.gather_after)


def test_b03_a_rotation_that_ends_in_the_pool_and_cannot_be_bypassed_is_refused() -> None:
    aiter = CAPABILITIES["aiter"]
    stuck = replace(aiter, rotates=tuple(replace(way, can_bypass=False) for way in aiter.rotates))
    error = refusal(plan, "aiter", "fp8", {"aiter": stuck})
    assert isinstance(error, PlanError)
    assert error.code == "DSA401"


def test_b03_gathered_k_with_local_positions_is_refused_by_its_row_count() -> None:
    batch = batches(Interleave(), 8, [64], [0])[3]
    k_nope, k_rope = normal(64, RANK), normal(64, ROPE)
    error = refused("rope_quantize", valid_args("rope_quantize", batch), k_nope=k_nope, k_rope=k_rope)
    text = "rope_quantize: k_nope has 64 rows, which is neither nnz_local 8 nor nnz_padded 8"
    assert (error.code, error.headline) == ("DSA102", text)
    call("rope_quantize", valid_args("rope_quantize", batch))


def test_b10_a_backend_that_does_not_declare_context_parallelism_is_refused_under_it() -> None:
    backend = replace(CAPABILITIES["flashmla_sparse"], context_parallel=Cited((), "does not say so"))
    known = {"flashmla_sparse": backend}
    error = refusal(plan, "flashmla_sparse", "bf16", known)
    text = "flashmla_sparse does not declare context parallelism in prefill"
    assert (error.code, error.headline) == ("DSA401", text)
    assert plan("flashmla_sparse", "bf16", known, cp_size=1).options.ranks == 1


def test_b10_query_rows_are_this_ranks_and_outputs_are_as_many() -> None:
    batch = batches(Interleave(), 8, [1024], [0], page_size=64)[7]
    args = valid_args("attend", batch)
    out, lse = call("attend", args)
    assert (out.shape[0], lse.shape[0]) == (128, 128)
    error = refused("attend", args, q=local(normal(1024, 2, RANK + ROPE), Rotated, batch))
    assert (error.code, error.headline) == (
        "DSA102",
        "attend: q has 1024 rows, which is neither nnz_local 128 nor nnz_padded 128",
    )


def test_b26_a_width_rule_of_one_backend_is_not_applied_to_another() -> None:
    # 1025 keys in pages of 32 are 33 pages, no multiple of 128 / 32.
    assert plan("trtllm", "fp8", page_size=32, block_table_width=33).row_format == "fp8"
    assert plan("flashmla_sparse", "bf16", block_table_width=33).row_format == "bf16"


def test_b26_a_rule_of_the_backend_itself_is_applied() -> None:
    error = refusal(plan, "trtllm", "fp8", page_size=33)
    assert (error.code, error.headline) == ("DSA401", "trtllm does not take page_size 33")


def test_b26_attend_takes_a_page_table_of_any_width_that_covers_the_keys() -> None:
    (batch,) = batches(Interleave(), 1, [1025], [0], page_size=32)
    args = valid_args("attend", batch)
    call("attend", args, page_table=args["page_table"][:, :33].contiguous())
    error = refused("attend", args, page_table=args["page_table"][:, :32].contiguous())
    text = "attend: page_table has 32 columns of 32 slots, the longest request has 1025 keys"
    assert (error.code, error.headline) == ("DSA114", text)


@pytest.mark.parametrize("field", ["topk_indices_offset", "page_table_1_flattened"])
def test_b29_metadata_that_a_backend_needs_in_a_phase_is_named_where_it_is_missing(field: str) -> None:
    options = PlanOptions(prefill_backend="flashmla_sparse", decode_backend="flashmla_kv", kv_format="fp8_656", cp_size=8)
    needed = tuple(need.field for need in plan_for(options).metadata)
    assert field in needed
    assert plan_for(options.model_copy(update={"metadata": needed})).placement == plan_for(options).placement
    lacking = tuple(name for name in needed if name != field)
    error = refusal(plan_for, options.model_copy(update={"metadata": lacking}))
    text = f"flashmla_sparse needs {field} in prefill with fp8_656 rows, the engine has none"
    assert (error.code, error.headline) == ("DSA304", text)


def test_b29_metadata_that_a_batch_was_not_given_is_named_with_its_user() -> None:
    (batch,) = build_batches(Interleave(), 1, [8])
    with pytest.raises(BatchError) as caught:
        rank_major_loc(batch)
    assert str(caught.value) == "\n".join(
        [
            "BatchError DSA304: write_kv needs rank_major_loc, which this batch does not have",
            "  where     cp_rank=0 of 1, interleave",
            "  try       give rank_major_loc to build_batch",
        ]
    )
