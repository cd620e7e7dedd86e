"""`VllmReplicated`: vLLM beside decode context parallelism, on small hand-written cases."""

import torch

from dsa_contracts.dsa.layout import Segment
from dsa_cp.layouts import VllmReplicated, VllmZigzag, build_batches


def segments(lens: list[int], cp_size: int) -> list[list[Segment]]:
    return [table.listed() for table in VllmReplicated().segment_tables(lens, cp_size)]


def written(lens: list[int], cp_size: int) -> list[list[bool]]:
    return [table.written.tolist() for table in VllmReplicated().segment_tables(lens, cp_size)]


def test_requests_that_fill_their_chunks_are_cut_as_without_replication() -> None:
    assert segments([7, 8, 14], 2) == [table.listed() for table in VllmZigzag().segment_tables([7, 8, 14], 2)]


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
    batches = build_batches(VllmReplicated(), 2, [4, 1, 4], out_cache_loc=slots)
    assert [batch.local_rows.tolist() for batch in batches] == [[0, 3, 4, 5, 8], [1, 2, 4, 6, 7]]
    assert batches[0].gathered_rows.tolist() == [0, 3, 4, 5, 8, 1, 2, 4, 6, 7]
    assert batches[0].restore_index.tolist() == [0, 5, 6, 1, 2, 3, 8, 9, 4]
    assert batches[0].rank_major_loc is not None
    assert batches[0].rank_major_loc.tolist() == [100, 103, 104, 105, 108, 101, 102, -1, 106, 107]


def test_ranks_count_their_copies_of_a_replicated_request() -> None:
    batches = build_batches(VllmReplicated(), 3, [2])
    assert batches[0].rank_lens == (2, 2, 2)
    assert batches[0].nnz == 2
    assert [batch.padded_rows.tolist() for batch in batches] == [[0, 1]] * 3
    assert batches[0].restore_index.tolist() == [0, 1]


def test_one_rank_writes_everything() -> None:
    assert segments([1, 5], 1) == [[(0, 0, 1), (1, 0, 3), (1, 3, 5)]]
    assert written([1, 5], 1) == [[True, True, True]]


def test_engine_padding_is_cut_and_decides_what_is_replicated() -> None:
    # Padded to four, three tokens fill four chunks; the padding row is the tail of rank 0.
    batches = build_batches(VllmReplicated(), 2, [3], padded_lens=[4])
    assert [batch.padded_rows.tolist() for batch in batches] == [[0, -1], [1, 2]]
    assert batches[0].rank_lens == (1, 2)


def test_decodes_stand_before_prefills_on_every_rank_and_rank_zero_writes_them() -> None:
    slots = torch.tensor([70, 71, 72, 73, 99])
    batches = build_batches(VllmReplicated(), 2, [4, 1], out_cache_loc=slots, decodes=[False, True])
    assert [batch.local_rows.tolist() for batch in batches] == [[4, 0, 3], [4, 1, 2]]
    assert batches[0].restore_index.tolist() == [1, 4, 5, 2, 0]
    assert batches[0].rank_major_loc is not None
    assert batches[0].rank_major_loc.tolist() == [99, 70, 73, -1, 71, 72]
