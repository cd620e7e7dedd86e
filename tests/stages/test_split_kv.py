from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import CpBatch, brand_of
from dsa_contracts.core.marks import Contiguous, UnitLast, mark_text
from dsa_contracts.dsa.row_formats import RowFormat, bf16_format, fp8_656_format, fp8_format, index_bf16_format
from dsa_contracts.dsa.states import Bf16Row, Fp8Row, Fp8Row656, Packed, PackedRowStride, Raw, Rotated
from dsa_cp.stages import split_kv
from tests.support.branded import BF16, FP8, RANK, ROPE, WIDE, batches, in_sequence, packed
from tests.support.messages import contract_and_ran
from tests.support.stage_calls import faulty, refusal, refused, valid_args

FORMATS: list[RowFormat[Any, Any, Any]] = [BF16, FP8, WIDE]
MODEL = [(bf16_format(), (576, 1), 512), (fp8_format(), (576, 1), 512), (fp8_656_format(), (656, 1), 264)]


def counted(rows: int, width: int) -> Tensor:
    """Bytes that all differ within a row."""
    return (torch.arange(rows)[:, None] * 37 + torch.arange(width) * 11 + 5).byte()


def rows_of(kv: Tensor, row_format: RowFormat[Any, Any, Any], batch: CpBatch[Any], rope: Any = Rotated) -> Any:
    return packed(kv, row_format.mark, rope, batch)


def test_halves_of_a_row_by_hand() -> None:
    batch = batches()[0]
    kv = rows_of(torch.tensor([[56, 192, 48, 126]] * 5, dtype=torch.uint8), fp8_format(2, 2), batch)
    k_nope, k_rope = split_kv(kv, fp8_format(2, 2), PackedRowStride, batch)
    assert k_nope[0].tolist() == [1.0, -2.0]
    assert k_rope[0].tolist() == [0.5, 448.0]


@pytest.mark.parametrize("row_format", FORMATS, ids=lambda row_format: row_format.name)
def test_views_and_copies_hold_the_same_bytes(row_format: RowFormat[Any, Any, Any]) -> None:
    batch = batches()[0]
    kv = rows_of(counted(5, row_format.row_bytes), row_format, batch)
    for strides in (PackedRowStride, Contiguous, UnitLast):
        k_nope, k_rope = split_kv(kv, row_format, strides, batch)
        for part, name in ((k_nope, "k_nope"), (k_rope, "k_rope")):
            assert part.dtype == row_format.part(name).dtype.torch_dtype
            assert part.contiguous().view(torch.uint8).tolist() == kv[:, row_format.part(name).columns].tolist()
            assert part.is_contiguous() is (strides is Contiguous)
            assert (part.untyped_storage().data_ptr() == kv.untyped_storage().data_ptr()) is (strides is not Contiguous)


@pytest.mark.parametrize(("row_format", "stride", "rope_at"), MODEL, ids=lambda value: getattr(value, "name", None))
def test_views_of_the_models_rows_have_the_strides_that_upstream_hands_on(
    row_format: RowFormat[Any, Any, Any], stride: tuple[int, int], rope_at: int
) -> None:
    batch = batches()[0]
    kv = rows_of(counted(5, row_format.row_bytes), row_format, batch)
    k_nope, k_rope = split_kv(kv, row_format, PackedRowStride, batch)
    assert k_nope.stride()[0] * k_nope.element_size() == row_format.row_bytes
    assert k_rope.stride()[0] * k_rope.element_size() == row_format.row_bytes
    assert (k_nope.stride(), k_rope.storage_offset()) == (stride, rope_at)


def test_one_row_and_no_rows_can_be_split_either_way() -> None:
    one, none = (batches(None, 4, [1], [0])[rank] for rank in (0, 1))
    for batch, rows in ((one, 1), (none, 0)):
        for strides in (PackedRowStride, Contiguous):
            k_nope, k_rope = split_kv(rows_of(counted(rows, 24), BF16, batch), BF16, strides, batch)
            assert (k_nope.shape, k_rope.shape) == ((rows, RANK), (rows, ROPE))


@pytest.mark.parametrize("rope", [Raw, Rotated])
def test_the_rope_part_keeps_the_state_of_the_rows_and_the_latent_has_none(rope: type) -> None:
    batch = batches()[0]
    parts = split_kv(rows_of(counted(5, 24), BF16, batch, rope), BF16, PackedRowStride, batch)
    brands = [brand_of(part) for part in parts]
    assert [mark_text(brand.kind.state) for brand in brands if brand] == ["Plain", rope.__name__]


def strided_rows(stride: int, offset: int, batch: CpBatch[Any]) -> Any:
    memory = torch.zeros(200, dtype=torch.uint8)
    return rows_of(torch.as_strided(memory, (5, 24), (stride, 1), offset), BF16, batch)


def test_rows_further_apart_are_views_where_any_row_stride_is_taken() -> None:
    batch = batches()[0]
    k_nope, k_rope = split_kv(strided_rows(28, 2, batch), BF16, UnitLast, batch)
    assert (k_nope.stride(), k_rope.stride(), k_rope.storage_offset()) == ((14, 1), (14, 1), 9)
    k_nope, _ = split_kv(strided_rows(25, 1, batch), BF16, Contiguous, batch)
    assert k_nope.is_contiguous()


@pytest.mark.parametrize(
    ("stride", "offset", "strides", "text"),
    [
        (28, 0, PackedRowStride, "rows of kv are 28 bytes apart, not 24"),
        (25, 0, UnitLast, "rows of kv are 25 bytes apart, a view of k_nope needs multiples of 2"),
        (30, 1, UnitLast, "k_nope of kv starts at byte 1 of its memory, a view needs multiples of 2"),
    ],
)
def test_rows_that_cannot_be_viewed_as_asked_are_refused(stride: int, offset: int, strides: type, text: str) -> None:
    batch = batches()[0]
    error = refusal(split_kv, strided_rows(stride, offset, batch), BF16, strides, batch)
    assert str(error) == "\n".join(
        [
            f"StageInputError DSA104: split_kv: {text}",
            (
                "  expected  rows_can_be_viewed: row stride and offset of kv are multiples of each part's itemsize; the row"
                " stride is the one asked for"
            ),
            "  where     cp_rank=0 of 2, zigzag",
            contract_and_ran(split_kv),
            "  try       ask for Contiguous, which copies, or hand on the packed rows themselves",
        ]
    )


def test_rows_of_another_width_are_refused() -> None:
    batch = batches()[0]
    error = refused("split_kv", valid_args("split_kv", batch), kv=rows_of(counted(5, 20), FP8, batch))
    assert (error.code, error.headline) == ("DSA110", "split_kv: kv is 20 bytes wide, a row of fp8 has 12")


def test_rows_of_another_format_of_the_same_width_are_refused_by_their_brand() -> None:
    batch = batches()[0]
    assert bf16_format(4, 2).row_bytes == FP8.row_bytes
    error = refusal(split_kv, rows_of(counted(5, 12), FP8, batch), bf16_format(4, 2), PackedRowStride, batch)
    assert (error.code, error.headline) == (
        "DSA107",
        "split_kv: kv is Packed[Fp8Row, Rotated], not Packed[Bf16Row, P]",
    )
    assert {Bf16Row, Fp8Row, Fp8Row656} == {row_format.mark for row_format in FORMATS}


def test_a_format_without_the_parts_of_a_kv_row_is_refused() -> None:
    batch = batches()[0]
    error = refusal(split_kv, rows_of(counted(5, 24), index_bf16_format(12), batch), index_bf16_format(12), Contiguous, batch)
    assert (error.code, error.headline) == ("DSA602", "row format index_bf16 has no part 'k_nope'; it has k_index")


def test_strides_that_are_no_stride_mark_are_refused() -> None:
    error = refused("split_kv", valid_args("split_kv", batches()[0]), strides="contiguous")
    assert (error.code, error.headline) == ("DSA101", "split_kv: strides is str")


def test_parts_of_another_width_or_stride_are_refused_as_a_result() -> None:
    batch = batches()[0]
    args = {**valid_args("split_kv", batch), "kv": in_sequence(counted(11, 12), Packed[Fp8Row, Rotated], batch)}

    def swapped(given: dict[str, Any]) -> tuple[Tensor, Tensor]:
        codes = given["kv"].view(torch.float8_e4m3fn)
        return codes[:, :4], codes[:, 4:]

    def copied(given: dict[str, Any]) -> tuple[Tensor, Tensor]:
        codes = given["kv"].view(torch.float8_e4m3fn)
        return codes[:, :8].contiguous(), codes[:, 8:]

    error = refusal(faulty("split_kv", swapped), **args)
    assert (error.code, error.headline) == ("DSA124", "split_kv: k_nope is 4 wide, k_nope of fp8 has 8 elements")
    error = refusal(faulty("split_kv", copied), **args)
    assert (error.code, error.headline) == ("DSA204", "split_kv: k_nope has rows 8 bytes apart, not 12")
