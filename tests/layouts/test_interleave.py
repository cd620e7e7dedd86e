"""`Interleave`: tokens dealt in turn, on small hand-written cases."""

import pytest
import torch

from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.dsa.layout import Segment
from dsa_cp.layouts import Interleave, build_batches, layout_by_name


def segments(lens: list[int], cp_size: int, block: int = 1) -> list[list[Segment]]:
    return [table.listed() for table in Interleave(block).segment_tables(lens, cp_size)]


def test_eight_tokens_on_two_ranks_are_as_drawn() -> None:
    batches = build_batches(Interleave(), 2, [8])
    assert [batch.padded_rows.tolist() for batch in batches] == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert batches[0].restore_index.tolist() == [0, 4, 1, 5, 2, 6, 3, 7]
    assert [batch.causal_lens[batch.local_rows].tolist() for batch in batches] == [[1, 3, 5, 7], [2, 4, 6, 8]]


def test_seven_tokens_on_two_ranks_are_as_drawn() -> None:
    batches = build_batches(Interleave(), 2, [7])
    assert [batch.padded_rows.tolist() for batch in batches] == [[0, 2, 4, 6], [1, 3, 5, -1]]
    assert batches[0].restore_index.tolist() == [0, 4, 1, 5, 2, 6, 3]
    assert batches[0].rank_lens == (4, 3)


def test_a_block_that_crosses_a_request_border_is_two_segments() -> None:
    assert segments([5, 3], 2, block=2) == [[(0, 0, 2), (0, 4, 5), (1, 0, 1)], [(0, 2, 4), (1, 1, 3)]]
    batches = build_batches(Interleave(2), 2, [5, 3])
    assert [batch.local_rows.tolist() for batch in batches] == [[0, 1, 4, 5], [2, 3, 6, 7]]
    assert [batch.local_request_of_row.tolist() for batch in batches] == [[0, 0, 0, 1], [0, 0, 1, 1]]


def test_a_block_over_several_requests_is_a_segment_of_each() -> None:
    assert segments([1, 1, 3], 2, block=4) == [[(0, 0, 1), (1, 0, 1), (2, 0, 2)], [(2, 2, 3)]]


def test_the_deal_goes_on_over_request_borders() -> None:
    assert segments([3, 2], 2) == [[(0, 0, 1), (0, 2, 3), (1, 1, 2)], [(0, 1, 2), (1, 0, 1)]]


def test_a_rank_without_a_whole_block_has_no_row() -> None:
    assert segments([5], 3, block=4) == [[(0, 0, 4)], [(0, 4, 5)], []]
    assert build_batches(Interleave(4), 3, [5])[2].padded_rows.tolist() == [-1, -1, -1, -1]


@pytest.mark.parametrize(("prefix", "expected"), [(0, [1, 3, 5, 7]), (5, [6, 8, 10, 12])])
def test_positions_are_those_of_the_rows_held(prefix: int, expected: list[int]) -> None:
    # B02: rank 1 was given [0, 1, 2, 3], the right number of wrong positions.
    batch = build_batches(Interleave(), 2, [8], [prefix])[1]
    assert batch.positions[batch.local_rows].tolist() == expected


def test_a_request_can_be_absent_from_a_rank() -> None:
    # B06: the one token of request 1 is on rank 0 only.
    batches = build_batches(Interleave(), 4, [8, 1])
    assert [batch.local_request_of_row.tolist() for batch in batches] == [[0, 0, 1], [0, 0], [0, 0], [0, 0]]
    assert [sorted(set(batch.local_request_of_row.tolist())) for batch in batches] == [[0, 1], [0], [0], [0]]


def test_five_tokens_are_on_five_of_eight_ranks() -> None:
    # B06: extend lens [4000, 5] on eight ranks; the last five tokens start on rank 0.
    batches = build_batches(Interleave(), 8, [4000, 5])
    rows = [torch.bincount(batch.local_request_of_row, minlength=2).tolist() for batch in batches]
    assert rows == [[500, 1]] * 5 + [[500, 0]] * 3


def test_engine_padding_is_dealt_but_never_counted() -> None:
    batches = build_batches(Interleave(), 4, [9, 14], padded_lens=[9, 17])
    assert batches[0].rank_lens == (6, 6, 6, 5)
    assert batches[0].nnz_padded == 7
    assert [batch.padded_rows[-2:].tolist() for batch in batches] == [[20, -1], [21, -1], [22, -1], [-1, -1]]


def test_padding_between_requests_keeps_its_place() -> None:
    batches = build_batches(Interleave(), 2, [1, 2], padded_lens=[3, 3])
    assert [batch.padded_rows.tolist() for batch in batches] == [[0, -1, 2], [-1, 1, -1]]
    assert [batch.padded_index.tolist() for batch in batches] == [[0, 2], [1]]


def test_a_chunk_of_8192_tokens_has_8192_segments() -> None:
    tables = Interleave().segment_tables([8000, 192], 4)
    assert [len(table.segments) for table in tables] == [2048] * 4


@pytest.mark.parametrize(("block", "name"), [(1, "interleave"), (2, "interleave(block=2)")])
def test_the_block_is_in_the_name(block: int, name: str) -> None:
    assert Interleave(block).name == name
    assert layout_by_name(name) == Interleave(block)


def test_block_one_can_be_written_out() -> None:
    assert layout_by_name("interleave(block=1)") == Interleave()


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (0, "ArgumentError DSA602: block is 0; it must be at least 1"),
        (-3, "ArgumentError DSA602: block is -3; it must be at least 1"),
        (True, "ArgumentError DSA602: block is True; it must be an int"),
        (1.5, "ArgumentError DSA602: block is 1.5; it must be an int"),
    ],
)
def test_a_block_below_one_is_refused(block: int, message: str) -> None:
    with pytest.raises(ArgumentError) as error:
        Interleave(block)
    assert str(error.value) == message


def test_a_written_block_of_zero_is_refused() -> None:
    with pytest.raises(ArgumentError) as error:
        layout_by_name("interleave(block=0)")
    assert str(error.value) == "ArgumentError DSA602: block is 0; it must be at least 1"


@pytest.mark.parametrize("text", ["", "Zigzag", "interleave(64)", "interleave(block=-1)", "interleave(block=1) ", None])
def test_an_unknown_name_is_refused_with_the_names_there_are(text: str) -> None:
    with pytest.raises(ArgumentError) as error:
        layout_by_name(text)
    assert str(error.value) == (
        f"ArgumentError DSA602: layout is {text!r}; it must be one of "
        "zigzag, interleave, interleave(block=64) with any block, vllm_zigzag, vllm_replicated"
    )
