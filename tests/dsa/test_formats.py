"""KV row formats: the bytes of each part."""

from typing import Any

import pytest

from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.core.marks import BF16, E4M3, F32
from dsa_contracts.dsa.row_formats import (
    RowFormat,
    bf16_format,
    fp8_656_format,
    fp8_format,
    index_bf16_format,
    index_fp8_format,
)
from dsa_contracts.dsa.states import Bf16Row, Fp8Row, Fp8Row656, IndexBf16Row, IndexFp8Row

PUBLISHED: dict[str, tuple[RowFormat[Any, Any, Any], int, list[tuple[str, object, int, int]]]] = {
    "bf16": (bf16_format(), 1152, [("k_nope", BF16, 512, 0), ("k_rope", BF16, 64, 1024)]),
    "fp8": (fp8_format(), 576, [("k_nope", E4M3, 512, 0), ("k_rope", E4M3, 64, 512)]),
    "fp8_656": (fp8_656_format(), 656, [("k_nope", E4M3, 512, 0), ("scales", F32, 4, 512), ("k_rope", BF16, 64, 528)]),
    "index_bf16": (index_bf16_format(), 256, [("k_index", BF16, 128, 0)]),
    "index_fp8": (index_fp8_format(), 132, [("k_index", E4M3, 128, 0), ("scales", F32, 1, 128)]),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_widths_and_offsets(name: str) -> None:
    row_format, row_bytes, parts = PUBLISHED[name]
    assert row_format.name == name
    assert row_format.row_bytes == row_bytes
    assert [(part.name, part.dtype, part.count, part.offset) for part in row_format.parts] == parts


@pytest.mark.parametrize("name", PUBLISHED)
def test_parts_follow_each_other_without_gaps_and_floats_are_aligned(name: str) -> None:
    row_format = PUBLISHED[name][0]
    ends = [part.columns.stop for part in row_format.parts]
    assert [part.offset for part in row_format.parts] == [0, *ends[:-1]]
    assert all(part.offset % part.dtype.torch_dtype.itemsize == 0 for part in row_format.parts)


def test_columns_of_a_part_are_byte_columns() -> None:
    assert fp8_656_format().part("scales").columns == slice(512, 528)
    assert fp8_656_format(256, 16).part("k_rope").columns == slice(264, 296)


def test_the_marks_and_dtypes_that_types_name() -> None:
    marks = {name: row_format.type_marks for name, (row_format, _, _) in PUBLISHED.items()}
    assert marks == {
        "bf16": (Bf16Row, BF16, BF16),
        "fp8": (Fp8Row, E4M3, E4M3),
        "fp8_656": (Fp8Row656, E4M3, BF16),
        "index_bf16": (IndexBf16Row, BF16, BF16),
        "index_fp8": (IndexFp8Row, E4M3, F32),
    }


def test_which_formats_are_quantised_and_which_keep_a_scale_beside_the_pool() -> None:
    facts = {name: (row_format.is_quantized, row_format.has_layer_scale) for name, (row_format, _, _) in PUBLISHED.items()}
    assert facts == {
        "bf16": (False, False),
        "fp8": (True, True),
        "fp8_656": (True, False),
        "index_bf16": (False, False),
        "index_fp8": (True, False),
    }


@pytest.mark.parametrize("width", [64, 127, 129, 500])
def test_fp8_656_needs_whole_groups(width: int) -> None:
    with pytest.raises(ArgumentError) as error:
        fp8_656_format(width)
    assert str(error.value) == f"ArgumentError DSA602: fp8_656 needs kv_lora_rank in multiples of 128, got {width}"


def test_fp8_656_takes_one_group() -> None:
    assert fp8_656_format(128, 16).row_bytes == 128 + 4 + 32


def test_a_part_that_a_format_does_not_have_is_named_with_those_it_has() -> None:
    with pytest.raises(ArgumentError) as error:
        fp8_format().part("scales")
    assert str(error.value) == "ArgumentError DSA602: row format fp8 has no part 'scales'; it has k_nope, k_rope"


def test_equal_formats_are_equal_with_equal_hashes() -> None:
    assert fp8_format() == fp8_format()
    assert hash(fp8_format()) == hash(fp8_format())
    assert fp8_format() != fp8_format(256)
    assert len({fp8_format(), fp8_format(), bf16_format()}) == 2
