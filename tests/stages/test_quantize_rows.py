import math
import struct
from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import checking_values
from dsa_contracts.core.marks import Plain
from dsa_contracts.dsa.row_formats import fp8_656_format
from dsa_contracts.dsa.states import Raw, Rotated
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import quantize_rows
from tests.support.branded import ROPE, WIDE, batches, local, normal
from tests.support.e4m3 import decode, encode, float32
from tests.support.messages import contract_and_ran
from tests.support.stage_calls import faulty, refusal, refused, valid_args

TINY = 2.0**-126


def rows_of(k_nope: Tensor, k_rope: Tensor) -> list[list[int]]:
    (batch,) = batches(Zigzag(), 1, [k_nope.shape[0]], [0])
    row_format = fp8_656_format(k_nope.shape[1], k_rope.shape[1])
    kv = quantize_rows(local(k_nope, Plain, batch), local(k_rope, Rotated, batch), row_format, batch)
    found: list[list[int]] = kv.tolist()
    return found


def scales_of(row: list[int], rank: int) -> list[float]:
    """The float32 scales of one packed row."""
    groups = rank // 128
    return list(struct.unpack(f"<{groups}f", bytes(row[rank : rank + 4 * groups])))


def test_a_row_of_the_model_has_656_bytes_in_this_order() -> None:
    k_nope, k_rope = normal(1, 512), normal(1, 64)
    (row,) = rows_of(k_nope, k_rope)
    assert len(row) == 656
    assert row[528:] == k_rope.view(torch.uint8)[0].tolist()
    assert len(scales_of(row, 512)) == 4


def test_each_group_of_128_has_the_scale_of_its_own_largest_value() -> None:
    k_nope = torch.zeros(1, 256)
    k_nope[0, :3] = torch.tensor([448.0, -224.0, 1.0])
    k_nope[0, 128:130] = torch.tensor([-7.0, 3.5])
    (row,) = rows_of(k_nope.bfloat16(), torch.zeros(1, 2).bfloat16())
    assert scales_of(row, 256) == [1.0, 2.0**-6]
    assert row[:4] == [126, 246, 56, 0]
    assert row[128:131] == [254, 118, 0]


def test_a_group_of_zeros_has_the_smallest_normal_scale() -> None:
    (row,) = rows_of(torch.zeros(1, 128).bfloat16(), torch.zeros(1, 2).bfloat16())
    assert scales_of(row, 128) == [TINY]
    assert row[:128] == [0] * 128


def test_a_group_of_subnormals_keeps_a_normal_scale() -> None:
    k_nope = torch.zeros(1, 128)
    k_nope[0, 0] = 2.0**-127
    (row,) = rows_of(k_nope.bfloat16(), torch.zeros(1, 2).bfloat16())
    assert scales_of(row, 128) == [TINY]
    assert row[0] == encode(0.5)


def test_codes_are_those_of_an_independent_encoder_and_come_back_within_half_a_step() -> None:
    k_nope = normal(20, 256) * torch.logspace(-6, 6, 20)[:, None]
    for values, row in zip(k_nope.bfloat16().tolist(), rows_of(k_nope.bfloat16(), normal(20, ROPE)), strict=True):
        for group, scale in enumerate(scales_of(row, 256)):
            part = values[128 * group : 128 * (group + 1)]
            assert scale == float32(max(abs(value) for value in part) / 448.0)
            codes = row[128 * group : 128 * (group + 1)]
            assert codes == [encode(float32(value / scale)) for value in part]
            for value, code in zip(part, codes, strict=True):
                assert abs(decode(code) * scale - value) <= max(abs(value) / 16, scale * 2.0**-10) * (1 + 1e-6)


def test_column_slices_give_the_bytes_of_dense_rows() -> None:
    batch = batches()[1]
    wide = normal(batch.nnz_local, 140)
    args = valid_args("quantize_rows", batch)
    sliced = {"k_nope": local(wide[:, :128], Plain, batch), "k_rope": local(wide[:, 136:], Rotated, batch)}
    dense = {name: local(part.contiguous(), part_state(name), batch) for name, part in sliced.items()}
    assert torch.equal(quantize_rows(**{**args, **sliced}), quantize_rows(**{**args, **dense}))


def part_state(name: str) -> object:
    return Rotated if name == "k_rope" else Plain


def test_a_raw_rope_part_is_refused() -> None:
    batch = batches()[0]
    args = valid_args("quantize_rows", batch)
    error = refused("quantize_rows", args, k_rope=local(args["k_rope"].clone(), Raw, batch))
    assert str(error) == "\n".join(
        [
            "StageInputError DSA107: quantize_rows: k_rope is Raw, not Rotated",
            *str(error).splitlines()[1:3],
            "  because   its brand: Local[Zigzag], Raw, zigzag, from test",
            "  where     cp_rank=0 of 2, zigzag",
            contract_and_ran(quantize_rows),
            "  try       apply RoPE before quantize_rows: the rope part of fp8_656 is stored rotated",
        ]
    )


@pytest.mark.parametrize(
    ("rank", "rope", "text"),
    [
        (256, ROPE, "k_nope is 128 wide, k_nope of fp8_656 has 256 elements"),
        (128, 6, "k_rope is 4 wide, k_rope of fp8_656 has 6 elements"),
    ],
)
def test_a_format_of_another_width_is_refused(rank: int, rope: int, text: str) -> None:
    error = refused("quantize_rows", valid_args("quantize_rows", batches()[0]), row_format=fp8_656_format(rank, rope))
    assert (error.code, error.headline) == ("DSA124", f"quantize_rows: {text}")


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_value_that_is_not_finite_is_refused_by_its_scale_where_values_are_read(value: float) -> None:
    batch = batches()[0]
    args = valid_args("quantize_rows", batch)
    k_nope = args["k_nope"].clone()
    k_nope[2, 5] = value
    quantize_rows(**{**args, "k_nope": local(k_nope, Plain, batch)})
    with checking_values():
        error = refused("quantize_rows", args, k_nope=local(k_nope.clone(), Plain, batch))
    assert (error.code, error.headline) == ("DSA112", "quantize_rows: row 2 of kv has a scale that is not positive")


def test_rows_of_another_width_are_refused_as_a_result() -> None:
    def of_width(width: int) -> Any:
        return faulty("quantize_rows", lambda args: torch.zeros(5, width, dtype=torch.uint8))

    error = refusal(of_width(576), **valid_args("quantize_rows", batches()[0]))
    text = f"quantize_rows: kv is 576 bytes wide, a row of fp8_656 has {WIDE.row_bytes}"
    assert (error.code, error.headline) == ("DSA110", text)
    of_width(WIDE.row_bytes)(**valid_args("quantize_rows", batches()[0]))


def test_padding_rows_may_hold_anything_where_values_are_read() -> None:
    (batch,) = batches(Zigzag(), 1, [3], [0], row_alignment=4)
    rank = WIDE.part("k_nope").count
    k_nope = torch.cat([normal(3, rank).bfloat16(), torch.full((1, rank), float("nan")).bfloat16()])
    args = {**valid_args("quantize_rows", batch), "k_nope": local(k_nope, Plain, batch)}
    args["k_rope"] = local(normal(4, ROPE).bfloat16(), Rotated, batch)
    with checking_values():
        assert quantize_rows(**args).shape[0] == 4
