"""`VllmZigzag`: vLLM's DualChunkSwap without decode context parallelism, on small hand-written cases."""

import torch

from dsa_contracts.dsa.layout import Segment
from dsa_cp.layouts import VllmZigzag, Zigzag, build_batches


def segments(lens: list[int], cp_size: int) -> list[list[Segment]]:
    return [table.listed() for table in VllmZigzag().segment_tables(lens, cp_size)]


def rows(lens: list[int], decodes: list[bool]) -> list[list[int]]:
    return [batch.local_rows.tolist() for batch in build_batches(VllmZigzag(), 2, lens, decodes=decodes)]


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


def test_a_chunk_that_no_token_is_left_for_is_empty() -> None:
    # Nine tokens in chunks of three leave the fourth chunk empty, although nine is more than four.
    assert segments([9], 2) == [[(0, 0, 3)], [(0, 3, 6), (0, 6, 9)]]
    # B45: three tokens cannot fill four chunks.
    assert segments([3], 2) == [[(0, 0, 1)], [(0, 1, 2), (0, 2, 3)]]
    assert segments([1], 2) == [[(0, 0, 1)], []]


def test_nothing_is_replicated_and_every_rank_writes_its_rows() -> None:
    assert [table.written.tolist() for table in VllmZigzag().segment_tables([4, 1, 4], 2)] == [[True] * 5, [True] * 4]
    assert build_batches(VllmZigzag(), 3, [2])[0].rank_lens == (1, 1, 0)


def test_decodes_stand_before_prefills_and_are_dealt_to_the_ranks_in_turn() -> None:
    assert rows([4, 1, 1], [False, True, True]) == [[4, 0, 3], [5, 1, 2]]
    assert rows([1, 4, 1, 1], [True, False, True, True]) == [[0, 6, 1, 4], [5, 2, 3]]
    assert rows([1], [True]) == [[0], []]


def test_a_request_of_one_token_that_is_no_decode_is_cut_and_keeps_its_place() -> None:
    assert rows([4, 1], [False, False]) == [[0, 3, 4], [1, 2]]


def test_the_slots_of_decodes_follow_their_rows() -> None:
    (first, _) = build_batches(VllmZigzag(), 2, [2, 1], out_cache_loc=torch.tensor([70, 71, 99]), decodes=[False, True])
    assert first.gathered_rows.tolist() == [2, 0, 1, -1]
    assert first.restore_index.tolist() == [1, 2, 0]
    assert first.rank_major_loc is not None
    assert first.rank_major_loc.tolist() == [99, 70, 71, -1]


def test_one_rank_writes_everything() -> None:
    assert segments([1, 5], 1) == [[(0, 0, 1), (1, 0, 3), (1, 3, 5)]]


def test_engine_padding_is_cut() -> None:
    # Padded to four, three tokens fill four chunks; the padding row is the tail of rank 0.
    batches = build_batches(VllmZigzag(), 2, [3], padded_lens=[4])
    assert [batch.padded_rows.tolist() for batch in batches] == [[0, -1], [1, 2]]
    assert batches[0].rank_lens == (1, 2)
