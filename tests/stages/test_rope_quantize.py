import math
from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import CpBatch, RopeStyle, checking_values
from dsa_contracts.core.marks import Plain
from dsa_contracts.dsa.states import Positions, Raw
from dsa_cp.layouts import Interleave, Zigzag
from dsa_cp.numerics.rotation import cos_sin_table
from dsa_cp.stages import rope_quantize
from tests.support.branded import HEADS, RANK, ROPE, batches, local, normal, table_for, table_of
from tests.support.e4m3 import encode, float32
from tests.support.messages import contract_and_ran
from tests.support.stage_calls import faulty, refusal, refused, valid_args
from tests.support.stage_values import rotated_codes

EVERY_BF16 = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)


def codes_of(values: Tensor, scale: float) -> list[int]:
    """The codes that the latent part of K gets for these values, one row."""
    (batch,) = batches(Zigzag(), 1, [1], [0])
    width = values.numel()
    args = {
        **valid_args("rope_quantize", batch),
        "q_nope": local(torch.zeros(1, HEADS, width).bfloat16(), Plain, batch),
        "k_nope": local(values.view(1, width), Plain, batch),
        "quant_scale_kv": scale,
    }
    _, kv = rope_quantize(**args)
    codes: list[int] = kv[0, :width].tolist()
    return codes


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_every_bf16_value_gets_the_code_of_an_independent_encoder(scale: float) -> None:
    codes = codes_of(EVERY_BF16, scale)
    for value, code in zip(EVERY_BF16.tolist(), codes, strict=True):
        if math.isnan(value):
            assert code & 0x7F == 0x7F
        else:
            assert code == encode(float32(value * scale) if abs(value) < 1e30 else value)


def test_codes_by_hand() -> None:
    by_hand = [
        (1.0, 56),
        (-2.0, 192),
        (0.5, 48),
        (0.0, 0),
        (-0.0, 128),
        (448.0, 126),
        (464.0, 126),  # half a step above the largest: saturated, not NaN
        (10000.0, 126),
        (math.inf, 126),
        (-math.inf, 254),
        (17.0, 88),  # between 16 and 18: to the even code of 16
        (19.0, 90),  # between 18 and 20: to the even code of 20
        (2.0**-9, 1),
        (2.0**-10, 0),  # half of the smallest: to 0
        (-(2.0**-10), 128),
        (3 * 2.0**-10, 2),  # between codes 1 and 2: to the even one
        (7 * 2.0**-9, 7),  # the largest subnormal
        (2.0**-6, 8),  # the smallest normal
    ]
    values, codes = zip(*by_hand, strict=True)
    assert codes_of(torch.tensor(values).bfloat16(), 1.0) == list(codes)


@pytest.mark.parametrize("style", RopeStyle)
def test_rotated_parts_are_cast_once_from_float32_and_stand_behind_the_latent(style: RopeStyle) -> None:
    batch = batches(Zigzag(), 2, [60, 21], [3, 11])[0]
    args = {**valid_args("rope_quantize", batch), "rope_style": style, "quant_scale_q": 3.0, "quant_scale_kv": 0.75}
    q, kv = rope_quantize(**args)
    for row, position in enumerate(args["positions"].tolist()):
        k_nope, k_rope = args["k_nope"][row].tolist(), args["k_rope"][row].tolist()
        assert kv[row, :RANK].tolist() == [encode(float32(value * 0.75)) for value in k_nope]
        assert kv[row, RANK:].tolist() == rotated_codes(k_rope, position, 0.75, style)
        for head in range(HEADS):
            codes = q[row, head].view(torch.uint8)
            assert codes[:RANK].tolist() == [encode(float32(value * 3.0)) for value in args["q_nope"][row, head].tolist()]
            assert codes[RANK:].tolist() == rotated_codes(args["q_rope"][row, head].tolist(), position, 3.0, style)


def test_bf16_in_between_would_give_other_bytes() -> None:
    # 1.0625 + 2^-10 lies above a midpoint of two codes; rounded to bf16 first it is the midpoint, and ties to even.
    (batch,) = batches(Zigzag(), 1, [1], [0])
    table = table_of(torch.tensor([[1.0, 1.0, -(2.0**-10), 0.0]]))
    k_rope = local(torch.tensor([[1.0625, 0.0, 1.0, 0.0]]).bfloat16(), Raw, batch)
    _, kv = rope_quantize(
        **{**valid_args("rope_quantize", batch), "cos_sin_cache": table, "k_rope": k_rope, "quant_scale_kv": 1.0}
    )
    assert (encode(1.0625), encode(1.0625 + 2.0**-10)) == (56, 57)
    assert int(kv[0, RANK]) == 57


def test_row_and_head_strides_of_each_input_do_not_change_a_byte() -> None:
    batch = batches(Interleave(), 2, [9], [3])[1]
    args = valid_args("rope_quantize", batch)
    q_wide, kv_wide = normal(batch.nnz_local, 2 * HEADS, RANK + ROPE), normal(batch.nnz_local, RANK + ROPE + 4)
    strided = {
        "q_nope": q_wide[:, :HEADS, :RANK],
        "q_rope": q_wide[:, HEADS:, RANK:],
        "k_nope": kv_wide[:, :RANK],
        "k_rope": kv_wide[:, RANK : RANK + ROPE],
    }
    assert [part.stride() for part in strided.values()] == [(48, 12, 1), (48, 12, 1), (16, 1), (16, 1)]

    def codes(parts: dict[str, Tensor]) -> list[list[int]]:
        states = {key: local(part, Raw if "rope" in key else Plain, batch) for key, part in parts.items()}
        return [part.view(torch.uint8).tolist() for part in rope_quantize(**{**args, **states})]

    assert codes(strided) == codes({key: part.contiguous() for key, part in strided.items()})


def test_padding_rows_take_part_and_reach_no_other_row() -> None:
    batch = batches(Zigzag(), 2, [7], [0], padded_lens=[8])[0]
    real, padded = valid_args("rope_quantize", batch), batch.padded_rows >= 0
    assert padded.tolist() == [True, True, True, False]
    rows: dict[str, Any] = {}
    for key in ("q_nope", "q_rope", "k_nope", "k_rope"):
        values = torch.full((4, *real[key].shape[1:]), math.nan).bfloat16()
        values[padded] = real[key]
        rows[key] = local(values, Raw if "rope" in key else Plain, batch)
    with checking_values():
        q, kv = rope_quantize(**{**real, **rows, "positions": local(torch.tensor([0, 1, 6, 0]), Positions, batch)})
    for whole, part in zip((q, kv), rope_quantize(**real), strict=True):
        assert torch.equal(whole[padded].view(torch.uint8), part.view(torch.uint8))


@pytest.mark.parametrize("name", ["quant_scale_q", "quant_scale_kv"])
@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_a_scale_that_is_not_finite_and_positive_is_refused(name: str, scale: float) -> None:
    error = refused("rope_quantize", valid_args("rope_quantize", batches()[0]), **{name: scale})
    assert (error.code, error.headline) == ("DSA112", f"rope_quantize: {name} is {scale}")


def test_a_scale_of_2_to_the_minus_40_passes() -> None:
    rope_quantize(**{**valid_args("rope_quantize", batches()[0]), "quant_scale_q": 2.0**-40})


def test_a_table_for_another_width_or_for_fewer_positions_is_refused() -> None:
    batch = batches(Zigzag(), 2, [8], [3])[1]
    args = valid_args("rope_quantize", batch)
    error = refused("rope_quantize", args, cos_sin_cache=table_for(batch, 6))
    assert (error.code, error.headline) == ("DSA111", "rope_quantize: cos_sin_cache is 6 wide, qk_rope_head_dim is 4")
    short = table_of(cos_sin_table(10, ROPE, 1e4))
    error = refused("rope_quantize", args, cos_sin_cache=short)
    assert error.headline == "rope_quantize: cos_sin_cache has 10 rows, positions of this batch go up to 10"
    rope_quantize(**{**args, "cos_sin_cache": table_of(cos_sin_table(11, ROPE, 1e4))})


def test_positions_of_other_rows_are_refused_where_their_values_are_read() -> None:
    batch = batches(Zigzag(), 2, [8], [0])[0]
    args = valid_args("rope_quantize", batch)
    with checking_values():
        error = refused("rope_quantize", args, positions=local(torch.tensor([0, 1, 2, 3]), Positions, batch))
        rope_quantize(**{**args, "positions": local(torch.tensor([0, 1, 6, 7]), Positions, batch)})
    assert str(error) == "\n".join(
        [
            "StageInputError DSA115: rope_quantize: positions[2] is 2, row 2 of k_rope is at position 6",
            "  expected  positions_go_with_rows: positions[i] is the position of row i of k_rope",
            "  where     cp_rank=0 of 2, zigzag",
            contract_and_ran(rope_quantize),
            "  try       pass what rebuild_positions returned; positions counted 0.. on each rank have the right shape only",
        ]
    )


@pytest.mark.parametrize(
    ("q_more", "kv_more", "text"),
    [
        (4, 0, "q is 16 wide, q_nope + q_rope are 12"),
        (0, 3, "kv is 15 wide, k_nope + k_rope are 12"),
    ],
)
def test_a_result_that_is_wider_than_its_parts_is_refused(q_more: int, kv_more: int, text: str) -> None:
    def body(args: dict[str, Any]) -> tuple[Tensor, Tensor]:
        rows = args["q_nope"].shape[0]
        q = torch.zeros(rows, HEADS, RANK + ROPE + q_more, dtype=torch.float8_e4m3fn)
        return q, torch.zeros(rows, RANK + ROPE + kv_more, dtype=torch.uint8)

    batch: CpBatch[Any] = batches()[0]
    kernel = faulty("rope_quantize", body)
    error = refusal(kernel, **valid_args("rope_quantize", batch))
    assert (error.code, error.headline) == ("DSA124", f"rope_quantize: {text}")
