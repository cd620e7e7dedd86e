"""`Zigzag`: sglang's cut, on small hand-written cases."""

import pytest

from dsa_contracts.dsa.codes import BatchError
from dsa_contracts.dsa.layout import Segment
from dsa_cp.layouts import Interleave, VllmZigzag, Zigzag, build_batches, layout_by_name


def segments(lens: list[int], cp_size: int) -> list[list[Segment]]:
    return [table.listed() for table in Zigzag().segment_tables(lens, cp_size)]


def test_eight_tokens_on_two_ranks_are_as_drawn() -> None:
    batches = build_batches(Zigzag(), 2, [8])
    assert [batch.padded_rows.tolist() for batch in batches] == [[0, 1, 6, 7], [2, 3, 4, 5]]
    assert batches[0].restore_index.tolist() == [0, 1, 4, 5, 6, 7, 2, 3]


def test_seven_tokens_on_two_ranks_are_as_drawn() -> None:
    batches = build_batches(Zigzag(), 2, [7])
    assert [batch.padded_rows.tolist() for batch in batches] == [[0, 1, 6, -1], [2, 3, 4, 5]]
    assert batches[0].gathered_rows.tolist() == [0, 1, 6, -1, 2, 3, 4, 5]
    assert batches[0].restore_index.tolist() == [0, 1, 4, 5, 6, 7, 2]
    assert batches[0].rank_lens == (3, 4)


def test_heads_of_all_requests_come_before_tails() -> None:
    assert segments([8, 3], 2) == [[(0, 0, 2), (1, 0, 1), (0, 6, 8)], [(0, 2, 4), (1, 1, 2), (0, 4, 6), (1, 2, 3)]]
    batches = build_batches(Zigzag(), 2, [8, 3])
    assert [batch.local_rows.tolist() for batch in batches] == [[0, 1, 8, 6, 7], [2, 3, 9, 4, 5, 10]]


def test_the_remainder_goes_to_the_first_chunks() -> None:
    # Eleven tokens in eight chunks: three of two, five of one.
    assert segments([11], 4) == [
        [(0, 0, 2), (0, 10, 11)],
        [(0, 2, 4), (0, 9, 10)],
        [(0, 4, 6), (0, 8, 9)],
        [(0, 6, 7), (0, 7, 8)],
    ]


def test_one_rank_holds_every_request_whole_in_two_halves() -> None:
    assert segments([5, 2], 1) == [[(0, 0, 3), (1, 0, 1), (0, 3, 5), (1, 1, 2)]]


def test_three_tokens_on_four_ranks_leave_the_last_rank_empty() -> None:
    # B45: a rank of zero rows is legal and joins the collective with padding only.
    batches = build_batches(Zigzag(), 4, [3])
    assert [batch.local_rows.tolist() for batch in batches] == [[0], [1], [2], []]
    assert [batch.padded_rows.tolist() for batch in batches] == [[0], [1], [2], [-1]]
    assert batches[3].nnz_local == 0


def test_three_tokens_on_two_ranks_leave_one_chunk_empty() -> None:
    # B45: cp 2 needs four chunks.
    assert segments([3], 2) == [[(0, 0, 1)], [(0, 1, 2), (0, 2, 3)]]


def test_fullest_rank_sets_the_padding_and_not_the_mean() -> None:
    # B09: ceil(15 / 2) = 8 is too small for rank 0.
    batches = build_batches(Zigzag(), 2, [5, 5, 5])
    assert batches[0].rank_lens == (9, 6)
    assert batches[0].nnz_padded == 9
    assert [batch.padded_rows.tolist() for batch in batches] == [
        [0, 1, 5, 6, 10, 11, 4, 9, 14],
        [2, 7, 12, 3, 8, 13, -1, -1, -1],
    ]


def test_requests_of_one_token_are_all_on_rank_zero() -> None:
    # B09: [1, 1, 1] on four ranks.
    batches = build_batches(Zigzag(), 4, [1, 1, 1])
    assert batches[0].rank_lens == (3, 0, 0, 0)
    assert batches[0].nnz_padded == 3
    assert batches[0].gathered_rows.tolist() == [0, 1, 2] + [-1] * 9


def test_engine_padding_is_cut_but_never_counted() -> None:
    # B42: chunks of 88; rank 0 holds 88 + 82 real rows. 698 // 4 = 174 is right on no rank.
    batches = build_batches(Zigzag(), 4, [698], padded_lens=[704])
    assert batches[0].rank_lens == (170, 176, 176, 176)
    assert batches[0].nnz_padded == 176
    assert batches[0].padded_rows[-7:].tolist() == [697, -1, -1, -1, -1, -1, -1]
    assert len(batches[0].padded_index) == 170


def test_borders_come_from_padded_lengths_and_validity_from_real_ones() -> None:
    # B43: 4 and 2 rows of the two requests on each rank; real // cp would say 2 and 1.
    batches = build_batches(Zigzag(), 2, [5, 3], padded_lens=[8, 4])
    assert [batch.padded_rows.tolist() for batch in batches] == [[0, 1, 5, -1, -1, -1], [2, 3, 6, 4, -1, 7]]
    assert [batch.local_rows.tolist() for batch in batches] == [[0, 1, 5], [2, 3, 6, 4, 7]]
    assert [batch.padded_index.tolist() for batch in batches] == [[0, 1, 2], [0, 1, 2, 3, 5]]
    assert batches[0].restore_index.tolist() == [0, 1, 6, 7, 9, 2, 8, 11]


def test_lengths_and_slots_of_the_failed_change_are_put_right() -> None:
    # B01 (b): rank 0 was given lengths [1, 2, 3, 4], and K in the order [0, 1, 6, 7, 2, 3, 4, 5].
    batches = build_batches(Zigzag(), 2, [8])
    assert [batch.causal_lens[batch.local_rows].tolist() for batch in batches] == [[1, 2, 7, 8], [3, 4, 5, 6]]
    assert batches[0].gathered_rows[batches[0].restore_index].tolist() == list(range(8))


def test_the_prefix_is_in_positions_and_lengths() -> None:
    # B08: 3670 new tokens on a prefix of 1, padded to 3672 for four ranks; upstream took 3671 - 3672 and clamped it to 0.
    batch = build_batches(Zigzag(), 4, [3670], [1], padded_lens=[3672])[0]
    assert (batch.prefix_lens, batch.seq_lens) == ((1,), (3671,))
    assert (batch.positions[0].item(), batch.positions[-1].item()) == (1, 3670)
    assert batch.causal_lens[-1].item() == 3671


def test_a_negative_prefix_is_an_error_and_no_clamp() -> None:
    with pytest.raises(BatchError) as error:
        build_batches(Zigzag(), 4, [3670], [3671 - 3672])
    assert str(error.value) == "BatchError DSA301: request 0: prefix_lens is -1; it must be at least 0"


def test_layouts_compare_equal_by_class_and_parameters() -> None:
    assert Zigzag() == Zigzag()
    assert hash(Zigzag()) == hash(Zigzag())
    assert len({Zigzag(), VllmZigzag(), Interleave(), Interleave(2), Interleave(2)}) == 4


@pytest.mark.parametrize("name", ["zigzag", "vllm_zigzag", "interleave", "interleave(block=64)"])
def test_a_layout_is_found_by_its_name(name: str) -> None:
    assert layout_by_name(name).name == name


@pytest.mark.parametrize(
    ("lens", "cp_size", "message"),
    [
        ([4], 0, "BatchError DSA302: cp_size is 0; it must be at least 1"),
        ([4], True, "BatchError DSA302: cp_size is True; it must be an int"),
        ([4], 2.0, "BatchError DSA302: cp_size is 2.0; it must be an int"),
        ([], 2, "BatchError DSA301: a batch needs at least one request"),
        ([4, -1], 2, "BatchError DSA301: request 1: padded_lens is -1; it must be at least 0"),
        ([4, True], 2, "BatchError DSA301: request 1: padded_lens is True; it must be an int"),
        ("44", 2, "BatchError DSA301: padded_lens is a str; it must be a sequence of ints"),
    ],
)
@pytest.mark.parametrize("layout", [Zigzag(), Interleave(), VllmZigzag()], ids=lambda layout: layout.name)
def test_every_layout_refuses_what_it_cannot_cut(layout: Zigzag, lens: list[int], cp_size: int, message: str) -> None:
    with pytest.raises(BatchError) as error:
        layout.segment_tables(lens, cp_size)
    assert str(error.value) == message
