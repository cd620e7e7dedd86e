from typing import Any

import pytest
import torch

from dsa_contracts import Layout, checking_values
from dsa_cp.layouts import Interleave, VllmReplicated, VllmZigzag, Zigzag
from dsa_cp.stages import rebuild_positions
from tests.support.branded import batches
from tests.support.messages import contract_and_ran
from tests.support.stage_calls import faulty, refusal, refused, valid_args

LAYOUTS = (Zigzag(), Interleave(), Interleave(block=3), VllmZigzag(), VllmReplicated())


def positions_of(layout: Layout, cp_size: int, extend: list[int], prefix: list[int]) -> list[list[int]]:
    """Each rank's positions, in local order."""
    made = batches(layout, cp_size, extend, prefix)
    return [rebuild_positions(batch.positions, batch.local_rows, batch).tolist() for batch in made]


def test_one_request_of_eight_on_two_ranks() -> None:
    assert positions_of(Zigzag(), 2, [8], [0]) == [[0, 1, 6, 7], [2, 3, 4, 5]]
    assert positions_of(Interleave(), 2, [8], [0]) == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert positions_of(VllmZigzag(), 2, [8], [0]) == [[0, 1, 6, 7], [2, 3, 4, 5]]


def test_the_prefix_counts() -> None:
    assert positions_of(Zigzag(), 2, [8], [5]) == [[5, 6, 11, 12], [7, 8, 9, 10]]
    assert positions_of(Interleave(), 2, [8], [5]) == [[5, 7, 9, 11], [6, 8, 10, 12]]


def test_positions_start_again_with_each_request() -> None:
    # Chunks of 2 2 2 1 and of 1 1 1 1; heads of both requests, then their tails.
    assert positions_of(Zigzag(), 2, [7, 4], [2, 0]) == [[2, 3, 0, 8, 3], [4, 5, 1, 6, 7, 2]]
    assert positions_of(Interleave(), 2, [7, 4], [2, 0]) == [[2, 4, 6, 8, 1, 3], [3, 5, 7, 0, 2]]


def test_a_rank_without_a_token_has_no_positions() -> None:
    assert positions_of(Zigzag(), 4, [3], [0]) == [[0], [1], [2], []]
    assert positions_of(Interleave(), 4, [3], [9]) == [[9], [10], [11], []]


def test_replicated_rows_have_the_same_positions_on_every_rank() -> None:
    assert positions_of(VllmReplicated(), 2, [9], [4]) == [[4, 5, 6, 7, 8, 9, 10, 11, 12]] * 2


def test_padding_rows_are_at_position_0() -> None:
    first, second = batches(Zigzag(), 2, [7], [3], padded_lens=[8], row_alignment=6)
    assert rebuild_positions(first.positions, first.padded_rows, first).tolist() == [3, 4, 9, 0, 0, 0]
    assert rebuild_positions(second.positions, second.padded_rows, second).tolist() == [5, 6, 7, 8, 0, 0]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
@pytest.mark.parametrize("cp_size", [1, 2, 5])
def test_positions_are_prefix_plus_token_of_each_segment(layout: Layout, cp_size: int) -> None:
    extend, prefix = [1, 13, 6, 40], [7, 0, 3, 64]
    tables = layout.segment_tables(extend, cp_size)
    expected = [
        [prefix[request] + token for request, start, stop in table.listed() for token in range(start, stop)]
        for table in tables
    ]
    assert positions_of(layout, cp_size, extend, prefix) == expected


def test_rows_of_another_rank_are_refused_where_their_values_are_read() -> None:
    batch, other = batches(Interleave(), 2, [8], [0])
    args = valid_args("rebuild_positions", batch)
    theirs: Any = other.local_rows.clone()
    rebuild_positions(batch.positions, theirs, batch)
    with checking_values():
        error = refused("rebuild_positions", args, rows=theirs)
    assert str(error) == "\n".join(
        [
            "StageInputError DSA119: rebuild_positions: rows[0] is 1, local row 0 of this rank is 0",
            "  expected  rows_are_this_ranks: rows is batch.local_rows or batch.padded_rows",
            "  where     cp_rank=0 of 2, interleave",
            contract_and_ran(rebuild_positions),
            "  try       pass batch.local_rows, or batch.padded_rows where the engine keeps padding rows",
        ]
    )


def test_rows_of_this_rank_pass_with_and_without_padding() -> None:
    batch = batches(Zigzag(), 2, [7], [0])[0]
    with checking_values():
        given: list[Any] = [batch.local_rows.clone(), batch.padded_rows.clone()]
        for rows in given:
            rebuild_positions(batch.positions, rows, batch)


def test_positions_counted_from_0_are_refused_as_a_result() -> None:
    counted = faulty("rebuild_positions", lambda args: torch.arange(len(args["rows"])))
    batch = batches(Interleave(), 2, [8], [5])[1]
    with checking_values():
        error = refusal(counted, batch.positions, batch.local_rows, batch)
    assert (error.code, error.headline) == ("DSA115", "rebuild_positions: positions[0] is 0, for row 1 it is 6")


def test_positions_counted_from_0_are_right_on_one_rank_without_prefix() -> None:
    counted = faulty("rebuild_positions", lambda args: torch.arange(len(args["rows"])))
    (batch,) = batches(Interleave(), 1, [8], [0])
    with checking_values():
        assert counted(batch.positions, batch.local_rows, batch).tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
