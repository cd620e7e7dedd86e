"""B23, B24, B28, B31, B33, B34, B36: tables and indices that reach too far, padding rows, and rows without keys."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import RopeStyle, checking_values
from dsa_contracts.dsa.states import Bf16Row, KeyCounts, KeyIds, Packed, Raw, Rotated, TokenSlots
from dsa_cp.layer.models import MODELS
from dsa_cp.layouts import Interleave, Zigzag
from dsa_cp.numerics.rotation import cos_sin_table
from dsa_cp.planner import PlanOptions, plan_for
from dsa_cp.planner.backends import CAPABILITIES
from dsa_cp.stages import apply_rope, rope_quantize
from tests.support.branded import HEADS, batches, gathered, in_sequence, local, pool_of, state_of, table_of
from tests.support.messages import contract_and_ran
from tests.support.stage_calls import call, faulty, refusal, refused, valid_args


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        (RopeStyle.NEOX, [-1.9841, 1.9599, 2.4624, 4.0198]),
        (RopeStyle.INTERLEAVED, [-1.1426, 1.9221, 2.9599, 4.0298]),
    ],
)
def test_b23_both_styles_give_their_golden_numbers_at_position_1(style: RopeStyle, expected: list[float]) -> None:
    (batch,) = batches(Zigzag(), 1, [1], [1])
    x = in_sequence(torch.tensor([[1.0, 2.0, 3.0, 4.0]]).bfloat16(), Raw, batch)
    rotated = apply_rope(x, batch.positions, table_of(cos_sin_table(2, 4, 1e4)), 4, style, batch)
    torch.testing.assert_close(rotated.float(), torch.tensor([expected]), rtol=2**-8, atol=0)


@pytest.mark.parametrize("name", ["apply_rope", "rope_quantize"])
def test_b23_the_style_has_no_default_and_is_no_flag(name: str) -> None:
    args = valid_args(name, batches()[0])
    error = refused(name, {key: value for key, value in args.items() if key != "rope_style"})
    assert (error.code, error.headline) == ("DSA101", f"{name}: missing a required argument: 'rope_style'")
    error = refused(name, args, rope_style=True)
    assert (error.code, error.headline) == ("DSA101", f"{name}: rope_style is bool")


@pytest.mark.parametrize("rank", [0, 1])
def test_b24_a_table_shorter_than_the_longest_request_is_refused_on_every_rank(rank: int) -> None:
    batch = batches(Zigzag(), 2, [8192], [0], page_size=64)[rank]
    assert sorted(batch.positions[batch.local_rows].tolist())[-1] == (8191 if rank == 0 else 6143)
    args = valid_args("rope_quantize", batch)
    error = refused("rope_quantize", args, cos_sin_cache=table_of(torch.zeros(4096, 4)))
    assert str(error) == "\n".join(
        [
            "StageInputError DSA111: rope_quantize: cos_sin_cache has 4096 rows, positions of this batch go up to 8191",
            (
                "  expected  table_covers_positions: cos_sin_cache has more rows than the largest position of the batch"
                " over all ranks"
            ),
            f"  where     cp_rank={rank} of 2, zigzag",
            contract_and_ran(rope_quantize),
            "  try       build the cos/sin table for prefix + extend of the longest request before the first layer",
        ]
    )
    call("rope_quantize", args, cos_sin_cache=table_of(torch.zeros(8192, 4)))


def wide_topk(batch: Any, width: int, entry: int) -> Any:
    topk = torch.full((batch.nnz_local, width), -1, dtype=torch.int32)
    topk[-1, width - 1] = entry
    return local(topk, KeyIds, batch)


def test_b28_an_entry_past_the_keys_of_its_row_is_refused_and_reaches_no_page() -> None:
    (batch,) = batches(Interleave(), 1, [1], [99], page_size=1)
    args = valid_args("attend", batch)
    with checking_values():
        error = refused("attend", args, topk_indices=wide_topk(batch, 8, 120))
        call("attend", args, topk_indices=wide_topk(batch, 8, 99))
    assert (error.code, error.headline) == ("DSA118", "attend: topk_indices[0, 7] is 120, row 0 sees 100 keys")
    out, lse = call("attend", args, topk_indices=wide_topk(batch, 8, 120))
    assert (float(out.abs().max()), lse.tolist()) == (0.0, [[-math.inf] * HEADS])


def test_b28_the_width_is_a_dim_and_no_constant() -> None:
    (batch,) = batches(Interleave(), 1, [1], [99])
    out, _ = call("attend", valid_args("attend", batch), topk_indices=wide_topk(batch, 2051, 99))
    assert out.shape == (1, HEADS, 8)


def test_b28_the_width_may_differ_from_the_models_top_k_by_extra_columns() -> None:
    (batch,) = batches(Interleave(), 1, [1], [99])
    MODELS["deepseek-v3.2"].bind(batch)
    assert batch.dims.value("index_topk") is None


def padded_args(batch: Any) -> dict[str, Any]:
    """Three real rows of eight; queries of padding rows are NaN."""
    real = valid_args("attend", batch)
    q = torch.full((8, *real["q"].shape[1:]), math.nan).bfloat16()
    topk, lens, requests = (torch.zeros(8, *shape, dtype=torch.int32) for shape in ((3,), (), ()))
    topk[:] = -1
    q[:3], topk[:3], lens[:3] = real["q"], real["topk_indices"], real["causal_lens"]
    rows = {"topk_indices": topk, "causal_lens": lens, "request_of_row": requests}
    branded = {name: local(values, state_of(real[name]), batch) for name, values in rows.items()}
    return {**real, "q": local(q, Rotated, batch), **branded}


def test_b31_padding_rows_of_the_output_are_zero_whatever_their_queries_hold() -> None:
    (batch,) = batches(Interleave(), 1, [3], [0], row_alignment=8)
    with checking_values():
        out, lse = call("attend", padded_args(batch))
    assert torch.equal(out[3:], torch.zeros_like(out[3:]))
    assert bool(torch.isneginf(lse[3:]).all())
    assert not bool(out.isnan().any())


def test_b31_a_kernel_that_leaves_padding_rows_unwritten_is_refused() -> None:
    (batch,) = batches(Interleave(), 1, [3], [0], row_alignment=8)

    def kernel(args: dict[str, Any]) -> tuple[Tensor, Tensor]:
        out, lse = torch.full((8, HEADS, 8), math.nan), torch.full((8, HEADS), math.nan)
        out[:3], lse[:3] = 1.0, 0.0
        return out, lse

    with checking_values():
        error = refusal(faulty("attend", kernel), **padded_args(batch))
    text = "attend: row 3 attends to nothing, its out is not 0 or its lse not -inf"
    assert (error.code, error.headline) == ("DSA121", text)


def test_b33_rows_and_whole_ranks_of_length_0_are_legal_for_the_references() -> None:
    (batch,) = batches(Interleave(), 1, [3], [0], row_alignment=8)
    args = {**padded_args(batch), "causal_lens": local(torch.zeros(8, dtype=torch.int32), KeyCounts, batch)}
    out, lse = call("attend", args)
    assert (float(out.abs().max()), bool(torch.isneginf(lse).all())) == (0.0, True)
    none = batches(Zigzag(), 4, [3], [0])[3]
    for name in ("select_topk", "attend"):
        with checking_values():
            call(name, valid_args(name, none))


def test_b33_a_page_below_0_is_refused_where_a_key_lies_on_it() -> None:
    batch = batches()[0]
    args = valid_args("attend", batch)
    table = args["page_table"].clone()
    table[0, 0] = -1
    with checking_values():
        error = refused("attend", args, page_table=table)
    assert (error.code, error.headline) == ("DSA114", "attend: page_table[0, 0] is -1, pool has 7 pages")


def test_b33_a_plan_says_which_length_padding_rows_have() -> None:
    def padding_length(name: str, kv_format: str) -> str:
        options = PlanOptions(prefill_backend=name, decode_backend=name, kv_format=kv_format)
        return plan_for(options).decided("padding_length").value

    assert CAPABILITIES["torch_reference"].zero_length_rows.value is True
    assert (padding_length("torch_reference", "fp8"), padding_length("trtllm", "fp8")) == ("0", "1")


def test_b34_padding_rows_are_not_written_to_the_last_slot() -> None:
    (batch,) = batches(
        Zigzag(), 1, [2], [0], page_size=8, row_alignment=4, out_cache_loc=torch.tensor([2, 3]), page_table=None
    )
    pool = pool_of(torch.zeros(1, 8, 24, dtype=torch.uint8), Bf16Row)
    rows = gathered(torch.full((4, 24), 9, dtype=torch.uint8), Packed[Bf16Row, Rotated], batch)
    args = {**valid_args("write_kv", batch), "pool": pool, "kv": rows}
    assert args["loc"].tolist() == [2, 3, -1, -1]
    with checking_values():
        call("write_kv", args)
    assert pool[0, :, 0].tolist() == [0, 0, 9, 9, 0, 0, 0, 0]


def test_b34_a_negative_slot_of_a_real_row_is_refused() -> None:
    (batch,) = batches(Zigzag(), 1, [2], [0])
    args = valid_args("write_kv", batch)
    with checking_values():
        error = refused("write_kv", args, loc=gathered(torch.tensor([2, -1]), TokenSlots, batch))
    assert (error.code, error.headline) == ("DSA116", "write_kv: 1 slots are written, the batch has 2 new tokens")


def merged(outs: list[float], lses: list[float]) -> float:
    """What a merge of partial attention makes of parts."""
    weights = [math.exp(lse - max(lses)) for lse in lses]
    return sum(weight * out for weight, out in zip(weights, outs, strict=True)) / sum(weights)


def test_b36_a_part_without_keys_adds_nothing_to_a_merge() -> None:
    assert round(merged([1.0, 5.0], [2.0, 0.0]), 3) == 1.477
    (batch,) = batches(Interleave(), 1, [1], [0])
    args = valid_args("attend", batch)
    none = local(torch.full((1, 3), -1, dtype=torch.int32), KeyIds, batch)
    with checking_values():
        out, lse = call("attend", args, topk_indices=none)
    assert merged([1.0, float(out[0, 0, 0])], [2.0, float(lse[0, 0])]) == 1.0


def test_b36_a_kernel_that_starts_its_lse_at_0_is_refused() -> None:
    (batch,) = batches(Interleave(), 1, [1], [0])
    none = local(torch.full((1, 3), -1, dtype=torch.int32), KeyIds, batch)
    kernel = faulty("attend", lambda args: (torch.zeros(1, HEADS, 8), torch.zeros(1, HEADS)))
    with checking_values():
        error = refusal(kernel, **{**valid_args("attend", batch), "topk_indices": none})
    text = "attend: row 0 attends to nothing, its out is not 0 or its lse not -inf"
    assert (error.code, error.headline) == ("DSA121", text)
