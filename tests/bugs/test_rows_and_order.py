"""B01, B02, B04: rows of all ranks where a rank's are meant, and the right number of rows in the wrong order."""

import pytest
import torch
from torch import Tensor

from dsa_contracts import CpBatch, Layout, RopeStyle, checking_values
from dsa_contracts.core.marks import Plain
from dsa_contracts.dsa.states import Bf16Row, KeyCounts, Packed, Positions, Raw, Rotated
from dsa_cp.layouts import Interleave, Zigzag
from dsa_cp.stages import rebuild_positions, reorder_causal_lens, restore_order, rope_quantize
from tests.support.branded import RANK, ROPE, batches, gathered, in_sequence, local, normal
from tests.support.messages import contract_and_ran
from tests.support.stage_calls import call, refused, valid_args

RIGHT = {
    "zigzag": ([0, 1, 4, 5, 6, 7, 2, 3], [[1, 2, 7, 8], [3, 4, 5, 6]]),
    "interleave": ([0, 4, 1, 5, 2, 6, 3, 7], [[1, 3, 5, 7], [2, 4, 6, 8]]),
}
"""Restore index and per-row lengths of eight tokens on two ranks."""


def eight_tokens(layout: Layout) -> tuple[CpBatch[Layout], ...]:
    return batches(layout, 2, [8], [0])


def test_b01_k_that_was_gathered_before_rope_is_refused_by_its_row_count() -> None:
    batch = eight_tokens(Zigzag())[0]
    k_nope, k_rope = in_sequence(normal(8, RANK), Plain, batch), in_sequence(normal(8, ROPE), Raw, batch)
    error = refused("rope_quantize", valid_args("rope_quantize", batch), k_nope=k_nope, k_rope=k_rope)
    where = "bound by batch (zigzag, cp_rank 0 of 2)"
    assert str(error) == "\n".join(
        [
            "StageInputError DSA102: rope_quantize: k_nope has 8 rows, which is neither nnz_local 4 nor nnz_padded 4",
            f"  expected  bf16[N kv_lora_rank] UnitLast, Local[L], Plain; nnz_local=4, {where}; nnz_padded=4, {where}",
            "  got       bf16[8, 8] strides (8, 1) cpu",
            "  because   its brand: Global[Sequence], Plain, from test",
            "  where     cp_rank=0 of 2, zigzag",
            contract_and_ran(rope_quantize),
            "  try       gather K after rope_quantize; `dsa-cp plan` shows the placement",
        ]
    )


def test_b01_k_that_was_gathered_is_refused_on_one_rank_as_well_where_counts_agree() -> None:
    (batch,) = batches(Zigzag(), 1, [8], [0])
    k_nope = in_sequence(normal(8, RANK), Plain, batch)
    error = refused("rope_quantize", valid_args("rope_quantize", batch), k_nope=k_nope)
    text = "rope_quantize: k_nope holds Global[Sequence] rows, not Local[Zigzag]"
    assert (error.code, error.headline) == ("DSA106", text)


@pytest.mark.parametrize("layout", [Zigzag(), Interleave()], ids=lambda layout: layout.name)
def test_b01_gathered_rows_are_restored_and_lengths_follow_the_rows(layout: Layout) -> None:
    index, lens = RIGHT[layout.name]
    for rank, batch in enumerate(eight_tokens(layout)):
        rows = batch.gathered_rows[:, None].byte()
        restored = restore_order(gathered(rows, Packed[Bf16Row, Rotated], batch), batch)
        assert restored.flatten().tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
        assert batch.restore_index.tolist() == index
        assert reorder_causal_lens(batch.causal_lens, batch.local_rows, batch).tolist() == lens[rank]


def test_b01_rows_left_in_rank_order_are_refused_before_they_are_written() -> None:
    batch = eight_tokens(Zigzag())[0]
    args = valid_args("write_kv", batch)
    error = refused("write_kv", args, loc=batch.out_cache_loc)
    text = "write_kv: loc holds Global[Sequence] rows, not Global[RankMajor[Zigzag]]"
    assert (error.code, error.headline) == ("DSA106", text)
    call("write_kv", args)


def test_b01_lengths_in_the_order_of_the_batch_are_refused() -> None:
    batch = eight_tokens(Zigzag())[0]
    args = valid_args("attend", batch)
    first = batch.causal_lens[:4].clone()
    with checking_values():
        error = refused("attend", args, causal_lens=local(first, KeyCounts, batch))
        call("attend", args, causal_lens=local(torch.tensor([1, 2, 7, 8], dtype=torch.int32), KeyCounts, batch))
    assert (error.code, error.headline) == ("DSA117", "attend: causal_lens[2] is 3, for row 6 it is 7")
    error = refused("attend", args, causal_lens=in_sequence(first.clone(), KeyCounts, batch))
    assert (error.code, error.headline) == ("DSA106", "attend: causal_lens holds Global[Sequence] rows, not Local[Zigzag]")


@pytest.mark.parametrize(("prefix", "wrong", "right"), [(0, [0, 1, 2, 3], [1, 3, 5, 7]), (5, [5, 6, 7, 8], [6, 8, 10, 12])])
def test_b02_positions_that_count_on_the_rank_are_refused_by_their_values(
    prefix: int, wrong: list[int], right: list[int]
) -> None:
    batch = batches(Interleave(), 2, [8], [prefix])[1]
    args = valid_args("rope_quantize", batch)
    assert rebuild_positions(batch.positions, batch.local_rows, batch).tolist() == right
    with checking_values():
        error = refused("rope_quantize", args, positions=local(torch.tensor(wrong), Positions, batch))
        call("rope_quantize", args, positions=local(torch.tensor(right), Positions, batch))
    text = f"rope_quantize: positions[0] is {wrong[0]}, row 0 of k_rope is at position {right[0]}"
    assert (error.code, error.headline) == ("DSA115", text)


def test_b02_positions_of_the_batch_are_refused_by_their_count_or_their_brand() -> None:
    batch = batches(Interleave(), 2, [8], [0])[1]
    error = refused("rope_quantize", valid_args("rope_quantize", batch), positions=batch.positions)
    text = "rope_quantize: positions has 8 rows, which is neither nnz_local 4 nor nnz_padded 4"
    assert (error.code, error.headline) == ("DSA102", text)
    (alone,) = batches(Interleave(), 1, [8], [0])
    error = refused("rope_quantize", valid_args("rope_quantize", alone), positions=alone.positions)
    assert (error.code, error.headline) == (
        "DSA106",
        "rope_quantize: positions holds Global[Sequence] rows, not Local[Interleave]",
    )


def test_b02_gathered_k_has_positions_of_its_own() -> None:
    batch = batches(Interleave(), 2, [8], [5])[1]
    x = in_sequence(normal(8, ROPE), Raw, batch)
    args = {**valid_args("apply_rope", batch), "x": x, "rope_style": RopeStyle.INTERLEAVED}
    with checking_values():
        rotated: Tensor = call("apply_rope", args, positions=batch.positions)
        error = refused("apply_rope", args, positions=in_sequence(torch.arange(8), Positions, batch))
    assert rotated.shape == (8, ROPE)
    assert (error.code, error.headline) == ("DSA115", "apply_rope: positions[0] is 0, row 0 of x is at position 5")


def test_b04_positions_that_were_not_sharded_with_the_rows_are_refused() -> None:
    batch = batches(Interleave(), 8, [8], [0])[4]
    args = valid_args("apply_rope", batch)
    error = refused("apply_rope", args, positions=batch.positions)
    assert (error.code, error.headline) == ("DSA102", "apply_rope: positions has 8 rows, x has 1")
    assert rebuild_positions(batch.positions, batch.local_rows, batch).tolist() == [4]
    call("apply_rope", args)
