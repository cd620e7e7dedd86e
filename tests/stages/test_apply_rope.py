import math

import pytest
import torch
from torch import Tensor

from dsa_contracts import RopeStyle, checking_values
from dsa_contracts.dsa.states import Positions, Raw
from dsa_cp.layouts import Interleave, Zigzag
from dsa_cp.numerics.rotation import cos_sin_table, rotate
from dsa_cp.stages import apply_rope
from tests.support.branded import batches, in_sequence, local, normal, table_for, table_of
from tests.support.e4m3 import bf16, float32
from tests.support.messages import contract_and_ran
from tests.support.stage_calls import refused, valid_args

QUARTER_TURNS = torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, -1.0, 1.0, 0.0], [-1.0, 0.0, 0.0, -1.0]])
"""Two cosines and two sines a position: exact numbers, so that every product is exact."""


def rotated(x: Tensor, positions: list[int], table: Tensor, style: RopeStyle) -> list[list[float]]:
    """Rows of one request under a hand-written table, which covers them."""
    (batch,) = batches(Zigzag(), 1, [len(positions)], [0])
    declared = table_of(table.contiguous())
    at = in_sequence(torch.tensor(positions), Positions, batch)
    values: Tensor = apply_rope(in_sequence(x, Raw, batch), at, declared, x.shape[-1], style, batch)
    found: list[list[float]] = values.float().tolist()
    return found


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        (RopeStyle.NEOX, [-1.9841, 1.9599, 2.4624, 4.0198]),
        (RopeStyle.INTERLEAVED, [-1.1426, 1.9221, 2.9599, 4.0298]),
    ],
)
def test_both_styles_give_the_published_numbers_at_position_1(style: RopeStyle, expected: list[float]) -> None:
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    exact = rotate(x, torch.tensor([1]), cos_sin_table(2, 4, 1e4), style)
    torch.testing.assert_close(exact, torch.tensor([expected]), rtol=0, atol=5e-5)
    (row,) = rotated(x.bfloat16(), [1], cos_sin_table(2, 4, 1e4), style)
    assert row == [bf16(float(value)) for value in exact[0]]


def test_quarter_turns_by_hand() -> None:
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0]] * 3).bfloat16()
    assert rotated(x, [0, 1, 2], QUARTER_TURNS, RopeStyle.NEOX) == [
        [1.0, 2.0, 3.0, 4.0],
        [-3.0, -2.0, 1.0, -4.0],
        [-1.0, 4.0, -3.0, -2.0],
    ]
    assert rotated(x, [0, 1, 2], QUARTER_TURNS, RopeStyle.INTERLEAVED) == [
        [1.0, 2.0, 3.0, 4.0],
        [-2.0, 1.0, -3.0, -4.0],
        [-1.0, -2.0, 4.0, -3.0],
    ]


def test_position_0_cannot_tell_the_styles_apart() -> None:
    x = normal(2, 4)
    assert rotated(x, [0, 0], QUARTER_TURNS, RopeStyle.NEOX) == x.float().tolist()
    assert rotated(x, [0, 0], QUARTER_TURNS, RopeStyle.INTERLEAVED) == x.float().tolist()


@pytest.mark.parametrize("style", RopeStyle)
def test_rows_are_those_of_a_float64_calculation_rounded_once(style: RopeStyle) -> None:
    (batch,) = batches(Zigzag(), 1, [40], [1000])
    x, table = normal(40, 2, 8), table_for(batch, 8)
    got = apply_rope(in_sequence(x, Raw, batch), batch.positions, table, 8, style, batch)
    for row, position in enumerate(batch.positions.tolist()):
        for head in range(2):
            pairs = [(i, i + 4) if style is RopeStyle.NEOX else (2 * i, 2 * i + 1) for i in range(4)]
            for i, (first, second) in enumerate(pairs):
                angle = position * 10000.0 ** (-2 * i / 8)
                a, b = (float(x[row, head, at]) for at in (first, second))
                cos, sin = math.cos(angle), math.sin(angle)
                for at, value in ((first, a * cos - b * sin), (second, b * cos + a * sin)):
                    assert abs(float(got[row, head, at]) - value) <= abs(value) * 2**-8 + 1e-6


def test_each_product_is_rounded_to_float32_before_the_sum() -> None:
    # 129/128 * (1 - 2^-24) lies between two float32 and goes to the lower one, 129/128 - 2^-23; a fused sum would not.
    table = torch.tensor([[1.0 - 2.0**-24, 1.0]])
    (row,) = rotated(torch.tensor([[129 / 128, 129 / 128]]).bfloat16(), [0], table, RopeStyle.NEOX)
    assert row == [-(2.0**-23), bf16(float32(129 / 64))]


def test_only_the_first_rope_dim_elements_turn_and_the_rest_keeps_its_bits() -> None:
    (batch,) = batches(Zigzag(), 1, [3], [0])
    x = normal(3, 2, 6)
    x[:, :, 4:] = float("nan")
    table = table_of(QUARTER_TURNS)
    got = apply_rope(in_sequence(x, Raw, batch), batch.positions, table, 4, RopeStyle.NEOX, batch)
    assert (
        got[..., :4].tolist()
        == apply_rope(in_sequence(x[..., :4], Raw, batch), batch.positions, table, 4, RopeStyle.NEOX, batch).tolist()
    )
    assert got[..., 4:].view(torch.int16).tolist() == x[..., 4:].view(torch.int16).tolist()


@pytest.mark.parametrize("style", RopeStyle)
def test_row_and_head_strides_of_the_input_do_not_change_a_byte(style: RopeStyle) -> None:
    batch = batches(Interleave(), 2, [9], [3])[1]
    wide = normal(batch.nnz_local, 5, 12)
    args = {**valid_args("apply_rope", batch), "rope_style": style}
    strided = local(wide[:, 1:4, 2:6], Raw, batch)
    assert strided.stride() == (60, 12, 1)
    dense = local(strided.clone(memory_format=torch.contiguous_format), Raw, batch)
    assert torch.equal(apply_rope(**{**args, "x": strided}), apply_rope(**{**args, "x": dense}))


def test_nan_stays_in_its_pair() -> None:
    x = torch.tensor([[float("nan"), 2.0, 3.0, 4.0]]).bfloat16()
    (row,) = rotated(x, [0], torch.tensor([[0.0, 0.0, 1.0, 1.0]]), RopeStyle.INTERLEAVED)
    assert math.isnan(row[0])
    assert math.isnan(row[1])
    assert row[2:] == [-4.0, 3.0]


def test_a_table_that_ends_before_the_last_position_of_the_batch_is_refused() -> None:
    batch = batches(Zigzag(), 2, [8], [0])[1]
    args = valid_args("apply_rope", batch)
    short = table_of(cos_sin_table(7, 4, 1e4))
    error = refused("apply_rope", args, cos_sin_cache=short)
    assert str(error) == "\n".join(
        [
            "StageInputError DSA111: apply_rope: cos_sin_cache has 7 rows, positions of this batch go up to 7",
            (
                "  expected  table_covers_positions: cos_sin_cache has more rows than the largest position of the batch"
                " over all ranks"
            ),
            "  where     cp_rank=1 of 2, zigzag",
            contract_and_ran(apply_rope),
            "  try       build the cos/sin table for prefix + extend of the longest request before the first layer",
        ]
    )
    apply_rope(**{**args, "cos_sin_cache": table_of(cos_sin_table(8, 4, 1e4))})


@pytest.mark.parametrize(
    ("rope_dim", "width", "text"),
    [
        (4, 6, "cos_sin_cache is 6 wide, rope_dim is 4"),
        (3, 3, "cos_sin_cache is 3 wide, rope_dim is 3"),
        (6, 6, "rope_dim is 6, x has last dim 4"),
        (0, 0, "rope_dim is 0, x has last dim 4"),
        (-2, 4, "rope_dim is -2, x has last dim 4"),
    ],
)
def test_a_width_that_does_not_fit_is_refused(rope_dim: int, width: int, text: str) -> None:
    batch = batches()[0]
    table = table_of(torch.zeros(20, width))
    error = refused("apply_rope", valid_args("apply_rope", batch), rope_dim=rope_dim, cos_sin_cache=table)
    assert (error.code, error.headline) == ("DSA111", f"apply_rope: {text}")


def test_a_rope_dim_of_half_the_width_passes() -> None:
    batch = batches()[0]
    table = table_of(torch.zeros(20, 2))
    apply_rope(**{**valid_args("apply_rope", batch), "rope_dim": 2, "cos_sin_cache": table})


def test_positions_counted_on_the_rank_are_refused_where_their_values_are_read() -> None:
    batch = batches(Interleave(), 2, [8], [5])[1]
    args = valid_args("apply_rope", batch)
    counted = local(torch.arange(4), Positions, batch)
    with checking_values():
        error = refused("apply_rope", args, positions=counted)
        apply_rope(**{**args, "positions": local(torch.tensor([6, 8, 10, 12]), Positions, batch)})
    assert (error.code, error.headline) == ("DSA115", "apply_rope: positions[0] is 0, row 0 of x is at position 6")
