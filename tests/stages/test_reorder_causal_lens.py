from typing import Any

import pytest
import torch

from dsa_contracts import Layout, checking_values
from dsa_cp.layouts import Interleave, VllmReplicated, VllmZigzag, Zigzag
from dsa_cp.stages import reorder_causal_lens
from tests.support.branded import batches
from tests.support.messages import contract_and_ran
from tests.support.stage_calls import faulty, refusal, refused, valid_args


def lens_of(layout: Layout, cp_size: int, extend: list[int], prefix: list[int]) -> list[list[int]]:
    """Each rank's lengths, in local order."""
    made = batches(layout, cp_size, extend, prefix)
    return [reorder_causal_lens(batch.causal_lens, batch.local_rows, batch).tolist() for batch in made]


def test_one_request_of_eight_on_two_ranks() -> None:
    assert lens_of(Zigzag(), 2, [8], [0]) == [[1, 2, 7, 8], [3, 4, 5, 6]]
    assert lens_of(Interleave(), 2, [8], [0]) == [[1, 3, 5, 7], [2, 4, 6, 8]]


def test_lengths_hold_the_prefix_and_belong_to_their_own_request() -> None:
    assert lens_of(Zigzag(), 2, [7, 4], [2, 0]) == [[3, 4, 1, 9, 4], [5, 6, 2, 7, 8, 3]]
    assert lens_of(Interleave(), 2, [7, 4], [2, 0]) == [[3, 5, 7, 9, 2, 4], [4, 6, 8, 1, 3]]


def test_a_rank_without_a_token_has_no_lengths() -> None:
    assert lens_of(Zigzag(), 4, [3], [0]) == [[1], [2], [3], []]


def test_replicated_rows_have_the_same_lengths_on_every_rank() -> None:
    assert lens_of(VllmReplicated(), 3, [2], [4]) == [[5, 6]] * 3


def test_padding_rows_see_no_key() -> None:
    first, second = batches(Zigzag(), 2, [7], [3], padded_lens=[8], row_alignment=6)
    assert reorder_causal_lens(first.causal_lens, first.padded_rows, first).tolist() == [4, 5, 10, 0, 0, 0]
    assert reorder_causal_lens(second.causal_lens, second.padded_rows, second).tolist() == [6, 7, 8, 9, 0, 0]


@pytest.mark.parametrize(
    "layout", [Zigzag(), Interleave(), Interleave(block=3), VllmZigzag(), VllmReplicated()], ids=lambda layout: layout.name
)
@pytest.mark.parametrize("cp_size", [1, 2, 5])
def test_a_length_is_prefix_plus_token_plus_1(layout: Layout, cp_size: int) -> None:
    extend, prefix = [1, 13, 6, 40], [7, 0, 3, 64]
    tables = layout.segment_tables(extend, cp_size)
    assert lens_of(layout, cp_size, extend, prefix) == [
        [prefix[request] + token + 1 for request, start, stop in table.listed() for token in range(start, stop)]
        for table in tables
    ]


def test_lengths_are_not_clamped_to_index_topk_as_upstream_clamps_them() -> None:
    assert lens_of(Zigzag(), 1, [1], [5000]) == [[5001]]


def test_rows_in_another_order_are_refused_where_their_values_are_read() -> None:
    batch = batches(Zigzag(), 2, [8], [0])[0]
    args = valid_args("reorder_causal_lens", batch)
    sorted_wrongly: Any = batch.local_rows.flip(0).contiguous()
    assert reorder_causal_lens(batch.causal_lens, sorted_wrongly, batch).tolist() == [8, 7, 2, 1]
    with checking_values():
        error = refused("reorder_causal_lens", args, rows=sorted_wrongly)
    assert str(error) == "\n".join(
        [
            "StageInputError DSA119: reorder_causal_lens: rows[0] is 7, local row 0 of this rank is 0",
            "  expected  rows_are_this_ranks: rows is batch.local_rows or batch.padded_rows",
            "  where     cp_rank=0 of 2, zigzag",
            contract_and_ran(reorder_causal_lens),
            "  try       pass batch.local_rows or batch.padded_rows of this rank's view of the batch",
        ]
    )


def test_the_first_lengths_of_the_batch_are_refused_as_a_result() -> None:
    identity = faulty("reorder_causal_lens", lambda args: args["causal_lens"][: len(args["rows"])].clone())
    first, second = batches(Zigzag(), 2, [8], [0])
    with checking_values():
        error = refusal(identity, first.causal_lens, first.local_rows, first)
        assert (error.code, error.headline) == (
            "DSA117",
            "reorder_causal_lens: local_causal_lens[2] is 3, for row 6 it is 7",
        )
        error = refusal(identity, second.causal_lens, second.local_rows, second)
        assert error.headline == "reorder_causal_lens: local_causal_lens[0] is 1, for row 2 it is 3"


def test_the_first_lengths_of_the_batch_are_right_on_one_rank() -> None:
    identity = faulty("reorder_causal_lens", lambda args: args["causal_lens"][: len(args["rows"])].clone())
    (batch,) = batches(Zigzag(), 1, [8], [0])
    with checking_values():
        assert torch.equal(identity(batch.causal_lens, batch.local_rows, batch), batch.causal_lens)


def test_a_padding_row_with_a_length_is_refused_as_a_result() -> None:
    one = faulty("reorder_causal_lens", lambda args: args["causal_lens"][args["rows"].clamp(min=0)])
    batch = batches(Zigzag(), 2, [7], [0], padded_lens=[8])[0]
    with checking_values():
        error = refusal(one, batch.causal_lens, batch.padded_rows, batch)
    assert error.headline == "reorder_causal_lens: local_causal_lens[3] is 1, for padding it is 0"
