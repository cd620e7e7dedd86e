"""What cannot work is refused at start-up by name; beside each refusal stands what just works."""

from dataclasses import replace
from typing import Any

import pytest

from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.dsa.codes import PlanError
from dsa_cp.planner import PlanOptions, plan_for
from dsa_cp.planner.backends import CAPABILITIES, Cited, IntRule, Reading
from dsa_cp.planner.refusals import CHECKS, ask, first_refusal
from dsa_cp.planner.upstream_differences import REFUSALS
from tests.support.plans import options, plan, refusal, with_backend

TRTLLM = CAPABILITIES["trtllm"]
FOUND = "as found in this test"


def test_a_backend_that_does_not_read_the_pool_in_prefill_is_refused_with_those_that_do() -> None:
    assert refusal(kv_format="fp8_656") == (
        "PlanError DSA401: trtllm does not read fp8_656 rows in prefill\n"
        "  expected  bf16, fp8\n"
        '  source    flashinfer `trtllm_batch_decode_with_kv_cache_mla(backend="trtllm-gen")`\n'
        "  try       backends that read them: flashmla_sparse, flashmla_kv, torch_reference"
    )
    assert plan(kv_format="fp8").placement == "rope_quantize_gather"


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_decode_backend_that_cannot_read_what_prefill_writes_is_refused_in_both_phases(phase: str) -> None:
    assert refusal(decode_backend="flashmla_kv", phase=phase).splitlines()[0] == (
        "PlanError DSA401: flashmla_kv does not read fp8 rows in decode"
    )
    assert plan(decode_backend="tilelang", phase=phase).row_format == "fp8"


def test_rows_that_are_read_in_prefill_only_do_not_serve_decode() -> None:
    assert refusal(backend="flashmla_sparse", kv_format="fp8_656").splitlines()[0] == (
        "PlanError DSA401: flashmla_sparse does not read fp8_656 rows in decode"
    )
    assert plan(prefill_backend="flashmla_sparse", decode_backend="flashmla_kv", kv_format="fp8_656").cost.wire_bytes == 656


def test_a_device_that_does_not_run_the_backend_is_refused() -> None:
    assert refusal(device="9.0") == (
        "PlanError DSA401: trtllm, the prefill backend, does not run on 9.0\n"
        "  expected  10.0, 10.3\n"
        f"  source    {TRTLLM.devices.source}\n"
        "  try       backends that do: flashmla_sparse, flashmla_kv, tilelang, fa3, torch_reference"
    )
    assert plan(device="10.3").options.device == "10.3"


def test_two_backends_that_share_no_device_are_refused() -> None:
    lines = refusal(decode_backend="fa3", kv_format="bf16").splitlines()
    assert lines[0] == "PlanError DSA401: no device runs both trtllm and fa3"
    assert lines[1] == "  expected  trtllm: 10.0, 10.3; fa3: 9.0"
    assert plan(prefill_backend="flashmla_sparse", decode_backend="fa3", kv_format="bf16").placement == "rope_gather"


@pytest.mark.parametrize(
    ("name", "wrong", "right", "expected"),
    [
        ("num_heads", 96, 128, "from 1 to 64, or at least 128"),
        ("index_topk", 2051, 2052, "a multiple of 4"),
        ("page_size", 16, 32, "32, or 64"),
    ],
)
def test_counts_are_checked_by_the_backends_own_rules(name: str, wrong: int, right: int, expected: str) -> None:
    too_odd: dict[str, Any] = {name: wrong}
    legal: dict[str, Any] = {name: right}
    lines = refusal(**too_odd).splitlines()
    assert lines[0] == f"PlanError DSA401: trtllm does not take {name} {wrong}"
    assert lines[1] == f"  expected  {expected}"
    assert lines[-1] == f"  try       a legal {name}, padded where the engine can, or another backend"
    assert plan(**legal).placement == "rope_quantize_gather"


def test_b26_a_block_table_rule_of_one_backend_is_not_asked_of_another() -> None:
    strict = replace(TRTLLM, name="strict", block_table_widths=Cited((IntRule(low=4, multiple_of=4),), FOUND))
    known = with_backend(strict)
    assert plan(page_size=32, block_table_width=33).placement == "rope_quantize_gather"
    assert refusal(known, backend="strict", page_size=32, block_table_width=33).splitlines()[:3] == [
        "PlanError DSA401: strict does not take block_table_width 33",
        "  expected  a multiple of 4",
        f"  source    {FOUND}",
    ]
    assert plan(known, backend="strict", page_size=32, block_table_width=36).placement == "rope_quantize_gather"


def test_counts_that_are_not_given_are_not_checked() -> None:
    assert plan().options.num_heads is None


def test_a_layout_that_a_backend_does_not_take_is_refused_where_ranks_share_the_batch() -> None:
    known = with_backend(replace(TRTLLM, name="picky", layouts=Cited(("interleave",), FOUND)))
    assert refusal(known, backend="picky", layout="zigzag") == (
        "PlanError DSA401: picky does not take layout zigzag\n"
        "  expected  interleave\n"
        f"  source    {FOUND}\n"
        "  try       a layout of those"
    )
    assert plan(known, backend="picky", layout="interleave(block=64)").options.layout == "interleave(block=64)"
    assert plan(known, backend="picky", layout="zigzag", cp_size=1).gather_after == "none"


def test_b10_a_path_that_does_not_declare_context_parallelism_is_refused() -> None:
    known = with_backend(replace(TRTLLM, name="global_offsets", context_parallel=Cited((), FOUND)))
    assert refusal(known, backend="global_offsets", cp_size=8) == (
        "PlanError DSA401: global_offsets does not declare context parallelism in prefill\n"
        "  because   its query offsets may run over the whole batch, its buffers hold this rank's rows\n"
        f"  source    {FOUND}\n"
        "  try       cp_size 1, or a backend that declares it: trtllm, flashmla_sparse, flashmla_kv, tilelang, aiter, fa3, "
        "torch_reference"
    )
    assert plan(known, backend="global_offsets", cp_size=1).gather_after == "none"
    assert plan(known, backend="global_offsets", cp_size=8, phase="decode").gather_after == "none"


def test_a_prefix_in_a_sharded_pool_is_refused() -> None:
    assert refusal(pool="sharded") == (
        "PlanError DSA401: a sharded pool does not hold the prefix rows of the other ranks\n"
        "  because   prefill attends to the prefix through the pool; only the batch's own rows are gathered\n"
        "  try       --pool replicated, or --no-prefix where every request is prefilled at once"
    )
    assert plan(pool="sharded", prefix=False).placement == "rope_quantize_gather"
    assert plan(pool="sharded", cp_size=1).gather_after == "none"


def test_decode_over_shards_is_refused_since_no_stage_merges_them() -> None:
    assert refusal(pool="sharded", prefix=False, phase="decode").splitlines()[0] == (
        "PlanError DSA401: no stage merges attention over the shards of a sharded pool"
    )


def test_b36_shards_need_an_lse_that_is_minus_infinity_for_an_empty_rank() -> None:
    silent = refusal(backend="tilelang", pool="sharded", prefix=False)
    assert silent.splitlines()[:2] == [
        "PlanError DSA401: tilelang cannot decode from shards: its LSE is not returned",
        "  expected  an LSE, -inf for a row without keys on this rank: a finite one counts as attention in the merge",
    ]
    finite = refusal(backend="flashmla_kv", kv_format="fp8_656", pool="sharded", prefix=False)
    assert finite.splitlines()[0] == (
        "PlanError DSA401: flashmla_kv cannot decode from shards: its LSE of an empty row is not -inf"
    )
    assert plan(backend="torch_reference", pool="sharded", prefix=False).placement == "rope_quantize_gather"


def test_b33_padding_rows_see_a_key_where_length_zero_is_not_known_to_be_legal() -> None:
    padded = plan(backend="flashmla_kv", kv_format="fp8_656").decided("padding_length")
    assert padded.value == "1"
    assert padded.reason == "rows without keys are not known to be legal: padding sees one key, in a page kept for it"
    assert padded.source.startswith("vllm-project/vllm#51970")
    assert plan(backend="torch_reference").decided("padding_length").value == "0"


def test_b29_missing_metadata_is_named_with_backend_phase_and_rows() -> None:
    mixed: dict[str, Any] = {
        "prefill_backend": "flashmla_sparse",
        "decode_backend": "flashmla_kv",
        "kv_format": "fp8_656",
    }
    built = ("rank_major_loc", "page_table", "page_table_1_flattened")
    assert refusal(**mixed, metadata=built) == (
        "PlanError DSA304: flashmla_sparse needs topk_indices_offset in prefill with fp8_656 rows, the engine has none\n"
        "  expected  where each row's keys begin among the dequantised ones; as many rows as q has, on each rank\n"
        "  source    sglang 0.5.23 layers/attention/dsa_backend.py builds it in plain EXTEND only; sgl-project/sglang#20606, "
        "#33197\n"
        "  try       build topk_indices_offset in prefill"
    )
    assert plan(**mixed, metadata=(*built, "topk_indices_offset")).placement == "rope_quantize_rows_gather"
    with pytest.raises(PlanError, match="needs topk_indices_offset in prefill"):
        plan(**mixed).require_metadata(built)
    plan(**mixed).require_metadata((*built, "topk_indices_offset"))


def test_b29_the_same_backend_needs_no_offset_over_bf16_rows() -> None:
    fields = [need.field for need in plan(backend="flashmla_sparse", kv_format="bf16").metadata]
    assert fields == ["rank_major_loc", "page_table"]


def test_b21_a_scale_is_tied_to_the_rows_that_are_stored() -> None:
    assert plan(kv_format="bf16").decided("kv_scale").value == "one"
    assert plan(kv_format="bf16").decided("kv_scale").reason == (
        "no scale is applied to bf16 rows here; a checkpoint's k_scale counts as 1"
    )
    assert plan(kv_format="fp8").decided("kv_scale").value == "layer"
    assert plan(backend="flashmla_kv", kv_format="fp8_656").decided("kv_scale").value == "rows"


def test_b21_two_backends_on_one_pool_have_the_smaller_freedom() -> None:
    assert plan(decode_backend="tilelang").decided("kv_scale").value == "one"
    assert plan(prefill_backend="tilelang").decided("kv_scale").value == "one"


def test_queries_of_another_dtype_than_the_backend_takes_leave_no_placement() -> None:
    reads = (Reading("fp8", ("prefill", "decode"), ("bf16",), "layer", FOUND),)
    text = refusal(with_backend(replace(TRTLLM, name="bf16_queries", reads=reads)), backend="bf16_queries")
    assert "rope_quantize_gather: it makes e4m3 queries, bf16_queries takes bf16 with fp8 rows" in text


def test_an_unknown_backend_is_refused_with_those_that_are_known() -> None:
    assert refusal(decode_backend="nsa") == (
        "ArgumentError DSA602: decode backend 'nsa' is not known; known are trtllm, flashmla_sparse, flashmla_kv, tilelang, "
        "aiter, fa3, torch_reference"
    )


def test_options_that_cannot_be_are_refused_when_they_are_made() -> None:
    with pytest.raises(ArgumentError, match="row format 'int8' is not known; known are bf16, fp8, fp8_656"):
        options(kv_format="int8")
    with pytest.raises(ArgumentError, match="cp_size is 0; it must be at least 1"):
        options(cp_size=0)
    with pytest.raises(ArgumentError, match="layout is 'striped'; it must be one of"):
        options(layout="striped")


def test_every_check_is_named_for_tables_and_passes_for_a_good_question() -> None:
    assert set(CHECKS) == set(REFUSALS)
    assert first_refusal(ask(options(), CAPABILITIES)) is None
    assert plan_for(PlanOptions(prefill_backend="trtllm", decode_backend="trtllm")).gather_after == "none"
