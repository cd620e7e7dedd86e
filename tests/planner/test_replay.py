"""A sequence of stages by name is a path, or is refused with the stage, the two facts that clash, and the fix."""

import pytest

from dsa_contracts import contract_of, stages
from dsa_contracts.dsa.codes import PlanError
from dsa_cp.layouts import Zigzag
from dsa_cp.planner.replay import replay


def refusal(sequence: str) -> str:
    """Return the text of the error that a sequence of stages raises."""
    with pytest.raises(PlanError) as caught:
        replay(tuple(sequence.split()), Zigzag)
    return str(caught.value)


def where(stage: str) -> str:
    """Return where a stage's contract is."""
    return contract_of(getattr(stages, stage)).location


def test_the_order_before_29161_is_refused() -> None:
    assert refusal("pack_kv all_gather_kv restore_order split_kv rope_quantize write_kv") == (
        "PlanError DSA402: rope_quantize: k_nope holds Global[Sequence] rows, not Local[Zigzag]\n"
        "  stage     5 of 6, after split_kv\n"
        "  expected  k_nope: bf16[N kv_lora_rank] UnitLast, Local[L], Plain\n"
        "  got       k_nope: bf16[nnz kv_lora_rank] PackedRowStride, Global[Sequence], Plain, from split_kv\n"
        f"  contract  {where('rope_quantize')}\n"
        "  try       gather K after rope_quantize; q, K and positions are this rank's rows here"
    )


def test_the_order_after_29161_is_a_path() -> None:
    path = replay(("rope_quantize", "all_gather_kv", "write_kv"), Zigzag)
    assert path.name == "rope_quantize_gather"
    assert [keys.rows for keys in path.keys] == ["local", "local", "global", "pool"]


def test_rope_of_rows_in_rank_major_order_has_no_positions() -> None:
    assert refusal("pack_kv all_gather_kv split_kv apply_rope pack_kv write_kv") == (
        "PlanError DSA402: apply_rope: there is no positions for Global[RankMajor[Zigzag]] rows\n"
        "  stage     4 of 6, after split_kv\n"
        "  expected  positions: i64[M] Contiguous, R, Positions\n"
        "  got       batch.positions of Global[Sequence]; rebuild_positions.positions of Local[Zigzag]\n"
        f"  contract  {where('apply_rope')}\n"
        "  try       x and positions must hold the same rows in the same order"
    )


def test_raw_keys_do_not_reach_the_pool() -> None:
    text = refusal("pack_kv all_gather_kv write_kv")
    assert text.splitlines()[0] == (
        "PlanError DSA402: write_kv: gathered is Packed[Bf16Row, Raw], not Packed[Bf16Row, Rotated]"
    )
    assert text.splitlines()[-1] == "  try       apply RoPE before the write: keys are stored rotated"


def test_rope_twice_is_refused_at_the_second() -> None:
    assert refusal("apply_rope apply_rope pack_kv all_gather_kv write_kv").splitlines()[0] == (
        "PlanError DSA402: apply_rope: rotated is Rotated, not Raw"
    )
    assert refusal("apply_rope rope_quantize all_gather_kv write_kv").splitlines()[-1] == (
        "  try       the backend rotates here: do not apply RoPE before"
    )


def test_a_second_gather_is_refused() -> None:
    assert refusal("rope_quantize all_gather_kv all_gather_kv write_kv").splitlines()[0] == (
        "PlanError DSA402: all_gather_kv: gathered holds Global[RankMajor[Zigzag]] rows, not Local[Zigzag]"
    )


def test_a_write_without_a_gather_is_refused_with_the_stage_that_is_missing() -> None:
    lines = refusal("rope_quantize write_kv").splitlines()
    assert lines[0] == "PlanError DSA402: write_kv: kv holds Local[Zigzag] rows, not Global[O]"
    assert lines[-1] == "  try       gather K before: all_gather_kv makes this rank's rows those of all ranks"


def test_a_plan_that_leaves_keys_outside_of_the_pool_is_refused() -> None:
    assert refusal("apply_rope pack_kv") == (
        "PlanError DSA402: the plan ends with K as bf16 in local rows, not in the pool\n"
        "  expected  a last stage that writes K into the pool\n"
        "  try       end with write_kv"
    )
    assert refusal("").splitlines()[0] == (
        "PlanError DSA402: the plan ends with K as bf16 halves in local rows, not in the pool"
    )


def test_a_stage_whose_operands_are_used_up_is_refused() -> None:
    assert refusal("rope_quantize rope_quantize all_gather_kv write_kv").splitlines()[0] == (
        "PlanError DSA402: rope_quantize: kv is Packed[Fp8Row, Rotated], not Plain"
    )


def test_a_stage_that_does_not_exist_is_refused_with_those_that_do() -> None:
    lines = refusal("rope_quantise").splitlines()
    assert lines[0] == "PlanError DSA402: there is no stage 'rope_quantise'"
    assert "rope_quantize" in lines[1]


def test_stages_of_q_may_be_left_out_and_come_after_those_of_k() -> None:
    short = replay(("apply_rope", "pack_kv", "all_gather_kv", "write_kv"), Zigzag)
    whole = replay(("apply_rope", "pack_kv", "all_gather_kv", "write_kv", "apply_rope", "merge_q"), Zigzag)
    assert short.stages == whole.stages


def test_an_order_that_nobody_asks_for_is_legal_all_the_same() -> None:
    path = replay(("rope_quantize", "all_gather_kv", "restore_order", "write_kv"), Zigzag)
    assert [move.sources for move in path.moves][-1] == (("loc", "batch.out_cache_loc"),)
