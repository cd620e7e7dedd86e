"""`VllmZigzag`: vLLM's DualChunkSwap, on small hand-written cases."""

import torch

from dsa_contracts.dsa.layout import Segment
from dsa_cp.layouts import VllmZigzag, Zigzag, build_batches


def segments(lens: list[int], cp_size: int) -> list[list[Segment]]:
    return [table.listed() for table in VllmZigzag().segment_tables(lens, cp_size)]


def written(lens: list[int], cp_size: int) -> list[list[bool]]:
    return [table.written.tolist() for table in VllmZigzag().segment_tables(lens, cp_size)]


def test_seven_tokens_on_two_ranks_are_vllms_own_example() -> None:
    batches = build_batches(VllmZigzag(), 2, [7])
    tokens = [*"ABCDEFG", "_"]  # the row -1 of padding reads the last
    assert [[tokens[row] for row in batch.local_rows] for batch in batches] == [[*"ABG"], [*"CDEF"]]
    assert [tokens[row] for row in batches[0].gathered_rows] == [*"ABG_CDEF"]
    assert batches[0].restore_index.tolist() == [0, 1, 4, 5, 6, 7, 2]


def test_eight_tokens_are_cut_as_sglang_cuts_them() -> None:
    ours, sglangs = (build_batches(layout, 2, [8]) for layout in (VllmZigzag(), Zigzag()))
    assert [batch.padded_rows.tolist() for batch in ours] == [[0, 1, 6, 7], [2, 3, 4, 5]]
    assert [batch.padded_rows.tolist() for batch in sglangs] == [[0, 1, 6, 7], [2, 3, 4, 5]]


def test_order_is_request_by_request() -> None:
    assert segments([7, 8], 2) == [
        [(0, 0, 2), (0, 6, 7), (1, 0, 2), (1, 6, 8)],
        [(0, 2, 4), (0, 4, 6), (1, 2, 4), (1, 4, 6)],
    ]
    batches = build_batches(VllmZigzag(), 2, [7, 8])
    assert [batch.padded_rows.tolist() for batch in batches] == [
        [0, 1, 6, 7, 8, 13, 14, -1],
        [2, 3, 4, 5, 9, 10, 11, 12],
    ]


def test_chunks_are_equal_and_the_last_is_shorter() -> None:
    # Eleven tokens on three ranks: six chunks of two, the last of one; remainder first would give 2 2 2 2 2 1 too.
    assert segments([11], 3) == [[(0, 0, 2), (0, 10, 11)], [(0, 2, 4), (0, 8, 10)], [(0, 4, 6), (0, 6, 8)]]
    # Fourteen on two: chunks of four, the last of two, where sglang cuts 4 4 3 3.
    assert segments([14], 2) == [[(0, 0, 4), (0, 12, 14)], [(0, 4, 8), (0, 8, 12)]]


def test_a_request_that_leaves_a_chunk_empty_is_whole_on_all_ranks_and_written_by_rank_zero() -> None:
    # Nine tokens in chunks of three leave the fourth chunk empty, although nine is more than four.
    assert segments([9], 2) == [[(0, 0, 9)], [(0, 0, 9)]]
    assert written([9], 2) == [[True], [False]]
    # B45: three tokens cannot fill four chunks.
    assert segments([3], 2) == [[(0, 0, 3)], [(0, 0, 3)]]


def test_a_replicated_request_between_others_keeps_its_place() -> None:
    assert segments([4, 1, 4], 2) == [
        [(0, 0, 1), (0, 3, 4), (1, 0, 1), (2, 0, 1), (2, 3, 4)],
        [(0, 1, 2), (0, 2, 3), (1, 0, 1), (2, 1, 2), (2, 2, 3)],
    ]
    assert written([4, 1, 4], 2) == [[True] * 5, [True, True, False, True, True]]


def test_only_the_written_copy_of_a_replicated_row_has_a_slot() -> None:
    slots = torch.arange(100, 109)
    batches = build_batches(VllmZigzag(), 2, [4, 1, 4], out_cache_loc=slots)
    assert [batch.local_rows.tolist() for batch in batches] == [[0, 3, 4, 5, 8], [1, 2, 4, 6, 7]]
    assert batches[0].gathered_rows.tolist() == [0, 3, 4, 5, 8, 1, 2, 4, 6, 7]
    assert batches[0].restore_index.tolist() == [0, 5, 6, 1, 2, 3, 8, 9, 4]
    assert batches[0].rank_major_loc is not None
    assert batches[0].rank_major_loc.tolist() == [100, 103, 104, 105, 108, 101, 102, -1, 106, 107]


def test_ranks_count_their_copies_of_a_replicated_request() -> None:
    batches = build_batches(VllmZigzag(), 3, [2])
    assert batches[0].rank_lens == (2, 2, 2)
    assert batches[0].nnz == 2
    assert [batch.padded_rows.tolist() for batch in batches] == [[0, 1]] * 3
    assert batches[0].restore_index.tolist() == [0, 1]


def test_one_rank_writes_everything() -> None:
    assert segments([1, 5], 1) == [[(0, 0, 1), (1, 0, 3), (1, 3, 5)]]
    assert written([1, 5], 1) == [[True, True, True]]


def test_engine_padding_is_cut_and_decides_what_is_replicated() -> None:
    # Padded to four, three tokens fill four chunks; the padding row is the tail of rank 0.
    batches = build_batches(VllmZigzag(), 2, [3], padded_lens=[4])
    assert [batch.padded_rows.tolist() for batch in batches] == [[0, -1], [1, 2]]
    assert batches[0].rank_lens == (1, 2)
