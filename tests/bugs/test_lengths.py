"""B08, B09, B38, B42, B43, B45: lengths derived from other lengths, in the wrong space or from padded ones."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsa_contracts.dsa.codes import BatchError
from dsa_cp.layouts import Interleave, VllmReplicated, Zigzag, build_batch, build_batches
from dsa_cp.layouts.formulas import INTS, interleave_count
from dsa_cp.stages import rebuild_positions, reorder_causal_lens


def test_b08_a_prefix_from_a_padded_length_is_refused_where_it_is_negative() -> None:
    total, padded = 3671, 3672
    with pytest.raises(BatchError) as caught:
        build_batch(Zigzag(), 4, 0, [3670], [total - padded])
    assert str(caught.value) == "BatchError DSA301: request 0: prefix_lens is -1; it must be at least 0"


def test_b08_the_prefix_is_kept_beside_padded_tokens() -> None:
    batch = build_batch(Zigzag(), 4, 0, [3670], [3671 - 3670], padded_lens=[3672])
    assert (batch.prefix_lens, batch.seq_lens, batch.padded_lens) == ((1,), (3671,), (3672,))
    positions = rebuild_positions(batch.positions, batch.local_rows, batch).tolist()
    assert (positions[0], positions[-1], len(positions)) == (1, 3670, 916)


def test_b08_a_prefix_that_was_clamped_to_0_is_refused_where_the_sequence_lengths_are_given() -> None:
    with pytest.raises(BatchError) as caught:
        build_batch(Zigzag(), 4, 0, [3670], [0], padded_lens=[3672], seq_lens=[3671])
    assert str(caught.value) == "\n".join(
        [
            "BatchError DSA301: request 0: seq_lens is 3671, prefix_lens 0 + extend_lens 3670 is 3670",
            "  because   one of them was padded or clamped",
            "  try       prefix = seq_len - extend_len, both without padding",
        ]
    )
    assert build_batch(Zigzag(), 4, 0, [3670], [1], padded_lens=[3672], seq_lens=[3671]).seq_lens == (3671,)


def test_b08_one_sequence_length_a_request_is_asked_for() -> None:
    with pytest.raises(BatchError, match="one entry a request is needed in each of extend_lens 2, seq_lens 1"):
        build_batch(Zigzag(), 4, 0, [3, 4], seq_lens=[3])


def test_b08_padded_tokens_below_the_real_ones_are_refused() -> None:
    with pytest.raises(BatchError, match="DSA301: request 0: padded_lens 3668 is below extend_lens 3670"):
        build_batch(Zigzag(), 4, 0, [3670], [1], padded_lens=[3668])


def test_b09_rows_are_padded_to_those_of_the_fullest_rank() -> None:
    made = build_batches(Zigzag(), 2, [5, 5, 5])
    assert [(batch.rank_lens, batch.nnz_padded, batch.nnz_gathered) for batch in made] == [((9, 6), 9, 18)] * 2
    with pytest.raises(BatchError) as caught:
        replace(made[0], nnz_padded=-(-15 // 2))
    assert str(caught.value) == "\n".join(
        [
            "BatchError DSA303: nnz_padded 8 is below 9, the rows of the fullest rank",
            "  try       pad to the largest nnz_local, not to ceil(nnz / cp_size)",
        ]
    )


def test_b09_one_token_requests_can_all_be_on_one_rank() -> None:
    made = build_batches(Zigzag(), 4, [1, 1, 1])
    assert (made[0].rank_lens, made[0].nnz_padded) == ((3, 0, 0, 0), 3)


def test_b38_lengths_are_localised_last() -> None:
    assert [interleave_count(length, 1, 2, 1, INTS) for length in (8, 9, 10)] == [4, 4, 5]
    assert [interleave_count(length, 1, 2, 0, INTS) for length in (8, 9, 10)] == [4, 5, 5]


@given(st.integers(0, 5000), st.integers(1, 9), st.integers(1, 70))
def test_b38_local_lengths_add_up_to_the_global_one(length: int, cp_size: int, block: int) -> None:
    counts = [interleave_count(length, block, cp_size, rank, INTS) for rank in range(cp_size)]
    assert sum(counts) == length
    expected = [
        length // (cp_size * block) * block + min(max(length % (cp_size * block) - rank * block, 0), block)
        for rank in range(cp_size)
    ]
    assert counts == expected


def test_b42_valid_rows_come_from_the_two_chunks_of_each_rank() -> None:
    made = build_batches(Zigzag(), 4, [698], padded_lens=[704])
    assert made[0].rank_lens == (170, 176, 176, 176)
    assert sum(made[0].rank_lens) == 698
    assert [len(batch.local_rows) for batch in made] == [170, 176, 176, 176]
    assert build_batches(Zigzag(), 2, [7], padded_lens=[8])[0].rank_lens == (3, 4)


def test_b42_the_same_number_of_rows_on_every_rank_is_refused() -> None:
    batch = build_batch(Zigzag(), 4, 0, [698], padded_lens=[704])
    with pytest.raises(BatchError) as caught:
        replace(batch, rank_lens=(698 // 4,) * 4)
    text = "rank_lens [174, 174, 174, 174] do not hold the 698 tokens of the batch"
    assert (caught.value.code, caught.value.headline) == ("DSA303", text)


def test_b43_local_borders_come_from_padded_lengths_and_validity_from_real_ones() -> None:
    made = build_batches(Zigzag(), 2, [5, 3], padded_lens=[8, 4])
    segments = [[tuple(part) for part in table.listed()] for table in Zigzag().segment_tables([8, 4], 2)]
    assert segments == [
        [(0, 0, 2), (1, 0, 1), (0, 6, 8), (1, 3, 4)],
        [(0, 2, 4), (1, 1, 2), (0, 4, 6), (1, 2, 3)],
    ]
    assert [batch.padded_rows.tolist() for batch in made] == [[0, 1, 5, -1, -1, -1], [2, 3, 6, 4, -1, 7]]
    assert [batch.local_request_of_row.tolist() for batch in made] == [[0, 0, 1], [0, 0, 1, 0, 1]]
    lens = [reorder_causal_lens(batch.causal_lens, batch.padded_rows, batch).tolist() for batch in made]
    assert lens == [[1, 2, 1, 0, 0, 0], [3, 4, 2, 5, 0, 3]]


def test_b45_a_request_too_short_for_its_chunks_leaves_ranks_without_rows() -> None:
    three_on_two = build_batches(Zigzag(), 2, [3])
    assert [batch.local_rows.tolist() for batch in three_on_two] == [[0], [1, 2]]
    three_on_four = build_batches(Zigzag(), 4, [3])
    assert [batch.local_rows.tolist() for batch in three_on_four] == [[0], [1], [2], []]
    assert [(batch.nnz_local, batch.nnz_padded) for batch in three_on_four] == [(1, 1), (1, 1), (1, 1), (0, 1)]
    assert [batch.local_rows.tolist() for batch in build_batches(VllmReplicated(), 2, [3])] == [[0, 1, 2], [0, 1, 2]]
    assert [batch.local_rows.tolist() for batch in build_batches(Interleave(), 4, [3])] == [[0], [1], [2], []]


def test_b45_a_request_without_tokens_is_refused() -> None:
    with pytest.raises(BatchError, match="DSA301: request 1: extend_lens is 0; it must be at least 1"):
        build_batches(Zigzag(), 2, [3, 0])
