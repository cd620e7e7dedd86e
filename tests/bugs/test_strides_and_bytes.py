"""B12, B13, B14, B17, B18, B21: strides as part of a contract, bytes that stay bytes, scales tied to the cache's dtype."""

from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts.core.marks import Contiguous
from dsa_contracts.dsa.row_formats import fp8_format
from dsa_contracts.dsa.states import Bf16Row, Fp8Row, Packed, PackedRowStride, Raw, Rotated, TokenSlots
from dsa_cp.layouts import Zigzag
from dsa_cp.planner import PlanOptions, plan_for
from dsa_cp.stages import all_gather_kv, split_kv
from tests.support.branded import FP8, HEADS, batches, in_sequence, local, normal, packed, pool_of
from tests.support.messages import contract_and_ran
from tests.support.stage_calls import call, refused, valid_args
from tests.support.stage_values import random_args, rotated_codes


def test_b12_the_number_of_slots_is_compared_with_the_rows_before_anything_is_flattened() -> None:
    (batch,) = batches(Zigzag(), 1, [4], [0])
    args = valid_args("write_kv", batch)
    two = in_sequence(batch.out_cache_loc[:2].clone(), TokenSlots, batch)  # type: ignore[index]
    rows = in_sequence(args["kv"].clone(), Packed[Bf16Row, Rotated], batch)
    error = refused("write_kv", args, kv=rows, loc=two)
    assert (error.code, error.headline) == ("DSA102", "write_kv: loc has 2 rows, which is neither nnz 4 nor nnz_gathered 4")
    call("write_kv", args, kv=rows, loc=batch.out_cache_loc)


def test_b12_views_of_packed_rows_have_the_strides_that_were_declared() -> None:
    batch, model = batches(Zigzag(), 1, [4], [0])[0], fp8_format()
    kv = packed(torch.zeros(4, 576, dtype=torch.uint8), Fp8Row, Rotated, batch)
    k_nope, k_rope = split_kv(kv, model, PackedRowStride, batch)
    assert (k_rope.shape, k_rope.stride(), k_rope.storage_offset()) == ((4, 64), (576, 1), 512)
    with pytest.raises(RuntimeError):
        k_rope.view(2, -1)
    dense, _ = split_kv(kv, model, Contiguous, batch)
    assert (dense.stride(), k_nope.stride()) == ((512, 1), (576, 1))


def test_b12_rows_with_any_row_stride_are_written_whole() -> None:
    (batch,) = batches(Zigzag(), 1, [4], [0])
    args = valid_args("write_kv", batch)
    wide = torch.arange(4 * 40, dtype=torch.uint8).view(4, 40)
    rows = in_sequence(wide[:, 5:29], Packed[Bf16Row, Rotated], batch)
    call("write_kv", args, kv=rows, loc=batch.out_cache_loc)
    assert torch.equal(args["pool"].view(-1, 24)[batch.out_cache_loc], wide[:, 5:29])


def strided_rope(batch: Any, k_stride: int) -> dict[str, Any]:
    """q_rope with heads 256 elements apart and k_rope with rows `k_stride` apart, both of width 4."""
    q = normal(batch.nnz_local, HEADS, 256)[..., :4]
    k = normal(batch.nnz_local, k_stride)[:, :4]
    assert (q.stride()[1:], k.stride()) == ((256, 1), (k_stride, 1))
    return {"q_rope": local(q, Raw, batch), "k_rope": local(k, Raw, batch)}


def test_b13_heads_of_q_and_rows_of_k_have_strides_of_their_own() -> None:
    batch = batches(Zigzag(), 1, [8], [0])[0]
    args = valid_args("rope_quantize", batch)
    strided = strided_rope(batch, 64)
    dense = {name: local(part.contiguous(), Raw, batch) for name, part in strided.items()}
    for got, want in zip(call("rope_quantize", args, **strided), call("rope_quantize", args, **dense), strict=True):
        assert torch.equal(got.view(torch.uint8), want.view(torch.uint8))


@pytest.mark.parametrize("name", ["q_nope", "q_rope", "k_nope", "k_rope"])
def test_b13_elements_that_are_not_next_to_each_other_are_refused_by_the_tensors_name(name: str) -> None:
    batch = batches()[0]
    args = valid_args("rope_quantize", batch)
    apart = torch.stack([args[name], args[name]], dim=-1)[..., 0]
    error = refused("rope_quantize", args, **{name: apart})
    assert (error.code, error.headline) == ("DSA104", f"rope_quantize: {name} has last stride 2, not 1")


def test_b14_a_sliced_key_is_rotated_in_its_own_columns() -> None:
    (batch,) = batches(Zigzag(), 1, [3], [0])
    whole = normal(3, 576)
    k_rope = local(whole[:, 512:516], Raw, batch)
    assert k_rope.stride() == (576, 1)
    args = {**valid_args("rope_quantize", batch), "quant_scale_kv": 1.0}
    _, kv = call("rope_quantize", args, k_rope=k_rope)
    for position in range(3):
        expected = rotated_codes(whole[position, 512:516].tolist(), position, 1.0, args["rope_style"])
        assert kv[position, 8:].tolist() == expected


def test_b14_a_slice_is_refused_where_a_contract_asks_for_dense_rows() -> None:
    batch = batches()[0]
    args = valid_args("attend", batch)
    wide = local(torch.cat([args["q"], args["q"]], dim=-1)[..., :12], Rotated, batch)
    error = refused("attend", args, q=wide)
    assert (error.code, error.headline) == ("DSA104", "attend: q is not contiguous")
    call("attend", args, q=local(wide.contiguous(), Rotated, batch))


def test_b17_codes_are_sent_as_bytes_and_come_back_as_the_same_codes() -> None:
    batch, row_format = batches(Zigzag(), 1, [1], [0])[0], fp8_format(2, 1)
    codes = torch.tensor([[1.0, -2.0, 0.5]]).to(torch.float8_e4m3fn)
    args = {**valid_args("all_gather_kv", batch), "row_format": row_format}
    error = refused("all_gather_kv", args, kv=codes)
    assert str(error) == "\n".join(
        [
            "StageInputError DSA103: all_gather_kv: kv is e4m3, not u8",
            (
                "  expected  u8[N row_bytes] UnitLast, Local[L], Packed[F, P];"
                " nnz_local=1, bound by batch (zigzag, cp_rank 0 of 1); nnz_padded=1, bound by batch (zigzag, cp_rank 0 of 1)"
            ),
            "  got       e4m3[1, 3] strides (3, 1) cpu",
            "  where     cp_rank=0 of 1, zigzag",
            contract_and_ran(all_gather_kv),
            "  try       send bytes: kv.view(torch.uint8), not .to(torch.uint8), which changes the values",
        ]
    )
    kv = packed(codes.view(torch.uint8), Fp8Row, Rotated, batch)
    gathered = call("all_gather_kv", valid_args("all_gather_kv", batch), kv=kv, row_format=row_format)
    assert gathered.tolist() == [[56, 192, 48]]
    k_nope, k_rope = split_kv(gathered, row_format, PackedRowStride, batch)
    assert (k_nope.tolist(), k_rope.tolist()) == ([[1.0, -2.0]], [[0.5]])


def test_b18_rows_of_a_format_are_read_as_no_other_and_with_their_scale() -> None:
    args, _ = random_args(batches(Zigzag(), 1, [6], [3])[0], FP8)
    out, _ = call("attend", args)
    twice, _ = call("attend", args, kv_scale=2 * args["kv_scale"], softmax_scale=args["softmax_scale"] / 2)
    torch.testing.assert_close(twice, 2 * out)
    other = pool_of(args["pool"].clone(), Bf16Row)
    error = refused("attend", args, pool=other)
    text = "attend: pool is Packed[Bf16Row, Rotated], not Packed[Fp8Row, Rotated]"
    assert (error.code, error.headline) == ("DSA107", text)
    error = refused("attend", args, pool=args["pool"].view(torch.float8_e4m3fn))
    assert (error.code, error.headline) == ("DSA103", "attend: pool is e4m3, not u8")
    lacking = {name: value for name, value in args.items() if name != "kv_scale"}
    error = refused("attend", lacking)
    assert (error.code, error.headline) == ("DSA101", "attend: missing a required argument: 'kv_scale'")


def test_b21_a_scale_for_a_bf16_cache_is_refused() -> None:
    args: dict[str, Any] = valid_args("attend", batches()[0])
    error = refused("attend", args, kv_scale=0.06)
    text = "attend: kv_scale is 0.06, and rows of bf16 have no scale of the layer"
    assert (error.code, error.headline) == ("DSA112", text)
    _, right = call("attend", args, kv_scale=1.0)
    _, flat = call("attend", args, kv_scale=1.0, softmax_scale=0.5 * 0.06)
    assert not torch.equal(right, flat)


def test_b21_an_fp8_cache_has_one_and_an_unscaled_query_is_refused_as_well() -> None:
    args, _ = random_args(batches()[0], FP8)
    call("attend", args, kv_scale=0.06)
    bf16_query: Tensor = local(args["q"].bfloat16(), Rotated, args["batch"])
    error = refused("attend", args, q=bf16_query)
    assert (error.code, error.headline) == ("DSA112", "attend: q_scale is 0.5, and q is not quantised")


def test_b21_the_plan_ties_the_scale_to_the_row_format() -> None:
    def kv_scale(kv_format: str) -> str:
        options = PlanOptions(prefill_backend="trtllm", decode_backend="trtllm", kv_format=kv_format)
        return plan_for(options).decided("kv_scale").value

    assert {kv_format: kv_scale(kv_format) for kv_format in ("bf16", "fp8")} == {"bf16": "one", "fp8": "layer"}
