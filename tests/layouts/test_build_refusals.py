"""What `build_batches` and `build_batch` refuse, and how they say it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.dsa.codes import BatchError
from dsa_contracts.dsa.layout import Layout, SegmentTable
from dsa_cp.layouts import Zigzag, build_batch, build_batches


def refusal(kind: type[BatchError] | type[ArgumentError], *args: Any, **options: Any) -> str:
    with pytest.raises(kind) as error:
        build_batches(*args, **options)
    return str(error.value)


@pytest.mark.parametrize(
    ("lens", "message"),
    [
        ([[]], "a batch needs at least one request"),
        ([[4, -1]], "request 1: extend_lens is -1; it must be at least 0"),
        ([[4, True]], "request 1: extend_lens is True; it must be an int"),
        ([[4.0]], "request 0: extend_lens is 4.0; it must be an int"),
        ([[4, float("nan")]], "request 1: extend_lens is nan; it must be an int"),
        ([4], "extend_lens is a int; it must be a sequence of ints"),
        ([torch.tensor([4])], "extend_lens is a Tensor; it must be a sequence of ints"),
        ([[4], [-1]], "request 0: prefix_lens is -1; it must be at least 0"),
        ([[4], [False]], "request 0: prefix_lens is False; it must be an int"),
        ([[4], []], "a batch needs at least one request"),
        ([[4], [0, 0]], "one entry a request is needed in each of extend_lens 1, prefix_lens 2, padded_lens 1"),
        (
            [[4], [2**31 - 4]],
            "request 0: 2147483644 cached and 4 new tokens are more than 2147483647\n  because   causal_lens are int32",
        ),
        (
            [[4], [2**70]],
            f"request 0: {2**70} cached and 4 new tokens are more than 2147483647\n  because   causal_lens are int32",
        ),
    ],
)
def test_lengths_that_do_not_fit_are_refused(lens: list[Any], message: str) -> None:
    assert refusal(BatchError, Zigzag(), 2, *lens) == f"BatchError DSA301: {message}"


def test_the_longest_sequence_that_int32_can_hold_is_a_batch() -> None:
    batch = build_batch(Zigzag(), 1, 0, [4], [2**31 - 5])
    assert batch.causal_lens.tolist() == [2**31 - 4, 2**31 - 3, 2**31 - 2, 2**31 - 1]


def test_padding_below_the_real_length_is_refused() -> None:
    message = "BatchError DSA301: request 1: padded_lens 2 is below extend_lens 3"
    assert refusal(BatchError, Zigzag(), 2, [4, 3], padded_lens=[4, 2]) == message


@pytest.mark.parametrize(
    ("cp_size", "cp_rank", "message"),
    [
        (0, 0, "cp_size is 0; it must be at least 1"),
        (-2, 0, "cp_size is -2; it must be at least 1"),
        (2, 2, "cp_rank is 2; it must be in 0..1"),
        (2, -1, "cp_rank is -1; it must be in 0..1"),
        (True, 0, "cp_size is True; it must be an int"),
        (2, 0.0, "cp_rank is 0.0; it must be an int"),
    ],
)
def test_a_rank_outside_of_its_group_is_refused(cp_size: int, cp_rank: int, message: str) -> None:
    with pytest.raises(BatchError) as error:
        build_batch(Zigzag(), cp_size, cp_rank, [4])
    assert str(error.value) == f"BatchError DSA302: {message}"


def test_no_group_of_zero_ranks_is_built() -> None:
    assert refusal(BatchError, Zigzag(), 0, [4]) == "BatchError DSA302: cp_size is 0; it must be at least 1"


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        (
            torch.arange(8),
            (
                "out_cache_loc has 8 slots, the batch has 9 rows\n"
                "  because   it holds one slot for each new token, none for engine padding"
            ),
        ),
        (
            torch.arange(9, dtype=torch.int32),
            "out_cache_loc must be int64 with 1 dim(s), got i32[9] strides (1,) cpu",
        ),
        (torch.zeros(9, 1, dtype=torch.int64), "out_cache_loc must be int64 with 1 dim(s), got i64[9, 1] strides (1, 1) cpu"),
        ([1, 2], "out_cache_loc must be int64 with 1 dim(s), got list [1, 2]"),
    ],
)
def test_slots_that_do_not_fit_are_refused(slots: Any, message: str) -> None:
    assert refusal(BatchError, Zigzag(), 2, [5, 4], out_cache_loc=slots) == f"BatchError DSA301: {message}"


def test_slots_with_gaps_between_them_are_refused() -> None:
    message = refusal(BatchError, Zigzag(), 2, [4], out_cache_loc=torch.arange(8)[::2])
    assert message.splitlines()[0] == "BatchError DSA303: out_cache_loc does not fit this batch"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (torch.zeros(2, 1, dtype=torch.int32), "request 1: 130 tokens need 3 pages of 64, page_table has 1"),
        (torch.zeros(2, 2, dtype=torch.int32), "request 1: 130 tokens need 3 pages of 64, page_table has 2"),
        (torch.zeros(1, 9, dtype=torch.int32), "page_table has 1 rows, the batch has 2 requests"),
        (torch.zeros(2, 3), "page_table must be int32 with 2 dim(s), got f32[2, 3] strides (3, 1) cpu"),
        (torch.zeros(6, dtype=torch.int32), "page_table must be int32 with 2 dim(s), got i32[6] strides (1,) cpu"),
    ],
)
def test_pages_that_do_not_cover_the_batch_are_refused(table: torch.Tensor, message: str) -> None:
    assert refusal(BatchError, Zigzag(), 2, [5, 4], [0, 126], page_table=table) == f"BatchError DSA301: {message}"


def test_pages_that_just_cover_the_batch_are_taken() -> None:
    table = torch.zeros(2, 3, dtype=torch.int32)
    assert build_batch(Zigzag(), 2, 0, [5, 4], [0, 188], page_table=table).page_table is not None


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("row_alignment", 0, "row_alignment is 0; it must be at least 1"),
        ("row_alignment", 2.0, "row_alignment is 2.0; it must be an int"),
        ("page_size", -64, "page_size is -64; it must be at least 1"),
        ("page_size", True, "page_size is True; it must be an int"),
        ("plan", None, "plan is None; it must be a plan's name"),
    ],
)
def test_an_option_that_is_not_legal_is_refused(option: str, value: Any, message: str) -> None:
    assert refusal(ArgumentError, Zigzag(), 2, [4], **{option: value}) == f"ArgumentError DSA602: {message}"


def test_a_layouts_name_is_no_layout() -> None:
    message = "ArgumentError DSA602: layout is 'zigzag'; it must be a Layout, as layout_by_name gives it"
    assert refusal(ArgumentError, "zigzag", 2, [4]) == message


def test_a_device_that_is_not_there_is_refused() -> None:
    message = refusal(ArgumentError, Zigzag(), 2, [4], device="abacus")
    assert message.splitlines()[0] == "ArgumentError DSA602: device 'abacus' cannot be used"


@dataclass(frozen=True)
class Given(Layout):
    """A layout that gives fixed segments: request, start, stop of each rank."""

    given: tuple[tuple[tuple[int, int, int], ...], ...]
    dtype: torch.dtype = torch.int64

    @property
    def name(self) -> str:
        return "given"

    def segment_tables(self, padded_lens: Sequence[int], cp_size: int) -> tuple[SegmentTable, ...]:
        return tuple(
            SegmentTable(torch.tensor(rank, dtype=self.dtype).view(-1, 3), torch.ones(len(rank), dtype=torch.bool))
            for rank in self.given
        )


@pytest.mark.parametrize(
    ("segments", "headline"),
    [
        ([[(0, 0, 2)], [(0, 3, 5)]], "row 2 is lost: given has 0 written copies of it over all ranks, not 1"),
        ([[(0, 0, 3)], [(0, 2, 5)]], "row 2 is doubled: given has 2 written copies of it over all ranks, not 1"),
        ([[(0, 0, 2)], []], "row 2 is lost: given has 0 written copies of it over all ranks, not 1"),
        ([[(0, 0, 5)], [(0, 5, 6)]], "given gives rank 1 the tokens 5..5 of request 0, which the batch does not have"),
        ([[(0, 0, 5), (1, 0, 1)], []], "given gives rank 0 the tokens 0..0 of request 1, which the batch does not have"),
        ([[(0, 0, 5), (-1, 0, 1)], []], "given gives rank 0 the tokens 0..0 of request -1, which the batch does not have"),
        ([[(0, -1, 5)], []], "given gives rank 0 the tokens -1..4 of request 0, which the batch does not have"),
        ([[(0, 0, 5)]], "given gives 1 segment tables for cp_size 2"),
    ],
)
def test_a_layout_that_loses_or_doubles_rows_is_refused(segments: Any, headline: str) -> None:
    layout = Given(tuple(tuple(rank) for rank in segments))
    message = refusal(BatchError, layout, 2, [5])
    assert message.splitlines()[0] == f"BatchError DSA303: {headline}"


def test_a_malformed_segment_table_is_refused() -> None:
    assert refusal(BatchError, Given((((0, 0, 5),), ()), torch.int32), 2, [5]) == (
        "BatchError DSA303: given gives rank 0 a malformed segment table\n"
        "  expected  i64[num_segments, 3] and bool[num_segments] on the CPU\n"
        "  got       i32[1, 3] strides (3, 1) cpu and bool[1] strides (1,) cpu"
    )


def test_the_message_of_a_lost_row_has_the_lengths() -> None:
    layout = Given((((0, 0, 2), (1, 0, 2)), ((1, 2, 4),)))
    assert refusal(BatchError, layout, 2, [3, 3], padded_lens=[3, 4]) == (
        "BatchError DSA303: row 2 is lost: given has 0 written copies of it over all ranks, not 1\n"
        "  batch     extend_lens [3, 3], padded_lens [3, 4]"
    )
