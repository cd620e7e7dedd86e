"""sglang's predicates as data agree with what was recorded from it; where they are right we decide the same."""

import json
from itertools import product
from pathlib import Path

import pytest

from dsa_contracts.dsa.codes import PlanError
from dsa_cp.planner import Plan
from dsa_cp.planner.backends import CAPABILITIES
from dsa_cp.planner.upstream import (
    FUSING_BACKENDS,
    KNOWN_BACKENDS,
    VERSIONS,
    decide,
    defers_gather,
    fuses_rope,
    pool_format_0_5_15,
    pool_format_0_5_23,
)
from dsa_cp.planner.upstream_differences import Comparison, compare, plan_or_error
from tests.support.plans import options

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def against(version: str, **given: object) -> Comparison:
    """Return how our decision for options compares with a version's."""
    asked = options(**given)
    return next(found for found in compare(plan_or_error(asked), asked) if found.version == version)


@pytest.mark.parametrize("name", ["sglang-0.5.15-in-seq-split", "sglang-0.5.15-round-robin-split"])
def test_the_recorded_truth_table_of_the_deferred_gather_is_ours(name: str) -> None:
    recorded = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))["should_defer"]
    assert len(recorded) == 4
    for dsa_prefill_cp, fuse_rope, defers in recorded:
        assert defers_gather(dsa_prefill_cp=dsa_prefill_cp, fuse_rope=fuse_rope) is defers


def test_either_backend_fuses_rope_whichever_runs() -> None:
    cases = {(p, d): fuses_rope(p, d, is_e4m3=True) for p, d in product(("trtllm", "flashmla_kv"), repeat=2)}
    assert cases == {
        ("trtllm", "trtllm"): True,
        ("trtllm", "flashmla_kv"): True,
        ("flashmla_kv", "trtllm"): True,
        ("flashmla_kv", "flashmla_kv"): False,
    }
    assert not fuses_rope("trtllm", "trtllm", is_e4m3=False)


def test_the_width_of_pool_rows_follows_the_pair_of_backends() -> None:
    mixed = options(prefill_backend="flashmla_kv", decode_backend="trtllm", kv_format="fp8_656")
    assert pool_format_0_5_15(mixed) == "fp8"
    assert pool_format_0_5_15(options(backend="flashmla_kv", kv_format="fp8_656")) == "fp8_656"
    assert pool_format_0_5_15(options(backend="tilelang")) == "fp8_656"
    assert pool_format_0_5_23(options(backend="tilelang")) == "fp8"
    assert pool_format_0_5_15(options(backend="tilelang", device="gfx950")) == "fp8"
    assert pool_format_0_5_15(options(backend="aiter")) == "fp8"
    assert pool_format_0_5_23(options(backend="tilelang", kv_format="bf16")) == "bf16"


@pytest.mark.parametrize("layout", ["zigzag", "interleave"])
def test_where_the_predicate_of_0_5_15_is_right_the_placement_is_the_same(layout: str) -> None:
    for kv_format in ("fp8", "bf16"):
        found = against("0.5.15", kv_format=kv_format, layout=layout)
        assert (found.kind, found.reason) == ("same", "")
    assert against("0.5.15", layout=layout).upstream == ("rope_quantize_gather, fp8 rows: dsa_prefill_cp and fuse_rope")


def test_all_cells_that_both_place_in_the_same_rows_agree_or_cost_less_here() -> None:
    agreed = 0
    for prefill, decode, layout, kv_format, size in product(
        CAPABILITIES, CAPABILITIES, ("zigzag", "interleave"), ("bf16", "fp8", "fp8_656"), (1, 4)
    ):
        asked = options(prefill_backend=prefill, decode_backend=decode, layout=layout, kv_format=kv_format, cp_size=size)
        ours = plan_or_error(asked)
        for version in VERSIONS:
            theirs = decide(version, asked)
            if isinstance(ours, Plan) and theirs.outcome == "placed" and theirs.row_format == kv_format:
                kind = next(found.kind for found in compare(ours, asked) if found.version == version)
                assert kind in ("same", "cheaper here")
                assert ours.cost.wire_bytes <= theirs.wire_bytes
                agreed += kind == "same"
    assert agreed == 182


def test_656_byte_rows_cost_less_on_the_wire_here() -> None:
    found = against("0.5.23", backend="flashmla_kv", kv_format="fp8_656")
    assert (found.kind, found.reason) == ("cheaper here", "656 bytes a token on the wire; upstream gathers 1152")


def test_zigzag_with_deferred_fp8_is_gone_from_0_5_23() -> None:
    found = against("0.5.23", layout="zigzag")
    assert (found.kind, found.reason) == (
        "new here",
        "prefill CP of DeepSeek-V3.2 does not support zigzag; other models fail at the first fp8 gather",
    )
    assert found.source == "arg_groups: parallel_hook.py, overrides.py, kv_shard_hook.py"


def test_rope_left_to_a_backend_that_does_not_run_is_refused_here() -> None:
    found = against("0.5.15", prefill_backend="flashmla_kv", decode_backend="trtllm")
    assert found.kind == "right here"
    assert found.reason == (
        "refused here at start-up (a backend does not read the rows); there RoPE is left to trtllm, and the other backend "
        "runs: K is stored raw, under CP ungathered"
    )


def test_b03_on_gfx950_upstream_rotates_gathered_keys_with_local_positions() -> None:
    theirs = decide("0.5.15", options(backend="tilelang", kv_format="bf16", device="gfx950"))
    assert (theirs.outcome, theirs.why) == (
        "broken",
        "K is gathered before the fused cache write, which rotates it with this rank's positions",
    )
    alone = decide("0.5.15", options(backend="tilelang", kv_format="bf16", device="gfx950", cp_size=1))
    assert alone.outcome == "placed"
    assert decide("0.5.23", options(backend="aiter", kv_format="bf16", device="gfx950")).why == (
        "prefill CP on HIP is for DeepSeek-V4 only"
    )


def test_b21_the_scale_of_trtllm_is_noted_for_both_kinds_of_rows() -> None:
    assert against("0.5.23", kv_format="bf16", cp_size=1).notes == (
        "logits are multiplied by the checkpoint's k_scale although the pool is bf16",
    )
    assert against("0.5.15").notes[0] == "K is quantised at scale 1 and read at the checkpoint's k_scale"
    assert against("0.5.15", backend="flashmla_kv", kv_format="fp8_656").notes == (
        "the gather restores the order in a pass over all rows of its own; here the slots are permuted",
    )


def test_what_upstream_does_not_have_is_absent() -> None:
    assert decide("0.5.23", options(layout="vllm_zigzag")).why == "it has no layout vllm_zigzag"
    assert decide("0.5.23", options(layout="interleave(block=64)")).why == "it has no layout interleave(block=64)"
    assert decide("0.5.23", options(backend="torch_reference")).why == "it has no backend torch_reference"
    assert decide("0.5.15", options(pool="sharded", prefix=False)).why == "it has no sharded pool"


def test_a_sharded_pool_of_0_5_23_needs_trtllm_and_fp8_and_takes_prefixes() -> None:
    assert decide("0.5.23", options(pool="sharded")).outcome == "placed"
    assert against("0.5.23", pool="sharded").kind == "refused here"
    assert decide("0.5.23", options(pool="sharded", kv_format="bf16")).outcome == "refused"


def test_tilelang_over_fp8_rows_must_be_both_backends_of_0_5_23() -> None:
    assert decide("0.5.23", options(decode_backend="tilelang")).outcome == "refused"
    assert decide("0.5.23", options(backend="tilelang")).outcome == "placed"
    assert decide("0.5.15", options(backend="tilelang")).outcome == "broken"


def test_every_decision_of_upstream_has_a_source() -> None:
    for prefill, decode, kv_format in product(CAPABILITIES, CAPABILITIES, ("bf16", "fp8", "fp8_656")):
        for version in VERSIONS:
            decision = decide(version, options(prefill_backend=prefill, decode_backend=decode, kv_format=kv_format))
            assert decision.source
            assert decision.why


def test_names_in_the_predicates_are_backends() -> None:
    assert set(CAPABILITIES) - {"torch_reference"} == KNOWN_BACKENDS
    assert FUSING_BACKENDS <= KNOWN_BACKENDS


def test_two_refusals_are_no_difference() -> None:
    found = against("0.5.23", layout="vllm_zigzag", kv_format="fp8_656")
    assert isinstance(plan_or_error(options(layout="vllm_zigzag", kv_format="fp8_656")), PlanError)
    assert (found.kind, found.reason) == ("refused by both", "")
