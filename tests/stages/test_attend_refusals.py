"""What `attend` refuses beyond what every stage does, and the nearest call that it takes."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import checking_values
from dsa_contracts.core import marks as states
from dsa_contracts.dsa.row_formats import bf16_format
from dsa_contracts.dsa.states import Bf16Row, KeyCounts, KeyIds, RequestIds, Rotated
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import attend
from tests.support.branded import FP8, HEADS, batches, local, normal, num_pages, pool_of, state_of
from tests.support.messages import contract_and_ran
from tests.support.stage_calls import faulty, refusal, refused, valid_args
from tests.support.stage_values import random_args


@pytest.fixture
def args() -> dict[str, Any]:
    return valid_args("attend", batches()[0])


def test_a_query_that_is_not_as_wide_as_a_key_is_refused(args: dict[str, Any]) -> None:
    error = refused("attend", args, q=local(normal(5, HEADS, 10), Rotated, args["batch"]))
    text = "attend: q is 10 wide, the values of a row of bf16 are 12"
    assert (error.code, error.headline) == ("DSA124", text)
    call, _ = random_args(batches()[0], bf16_format(6, 4))
    assert call["q"].shape[-1] == 10
    attend(**call)


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
def test_queries_that_are_no_values_are_refused(args: dict[str, Any], dtype: torch.dtype) -> None:
    error = refused("attend", args, q=local(args["q"].to(dtype), Rotated, args["batch"]))
    assert (error.code, error.headline) == ("DSA103", f"attend: q is {dtype}")
    attend(**{**args, "q": local(args["q"].float(), Rotated, args["batch"])})


@pytest.mark.parametrize("mark", [states.I32, states.U8, states.E4M3])
def test_an_output_dtype_that_holds_no_attention_output_is_refused(args: dict[str, Any], mark: type) -> None:
    error = refused("attend", args, out_dtype=mark)
    assert (error.code, error.headline) == ("DSA103", f"attend: out_dtype is {mark.__name__}")


def test_a_pool_of_another_width_page_size_or_format_is_refused(args: dict[str, Any]) -> None:
    error = refused("attend", args, row_format=bf16_format(8, 6))
    assert (error.code, error.headline) == ("DSA110", "attend: pool is 24 bytes wide, a row of bf16 has 28")
    error = refused("attend", args, pool=pool_of(args["pool"].view(-1, 1, 24), Bf16Row))
    assert (error.code, error.headline) == ("DSA114", "attend: pool has pages of 1 slots, the batch has page_size 4")
    error = refused("attend", args, row_format=FP8)
    text = "attend: pool is Packed[Bf16Row, Rotated], not Packed[Fp8Row, Rotated]"
    assert (error.code, error.headline) == ("DSA107", text)


def test_a_page_table_that_is_too_narrow_or_names_no_page_of_the_pool_is_refused(args: dict[str, Any]) -> None:
    error = refused("attend", args, page_table=args["page_table"][:, :2].contiguous())
    text = "attend: page_table has 2 columns of 4 slots, the longest request has 9 keys"
    assert (error.code, error.headline) == ("DSA114", text)
    table = args["page_table"].clone()
    table[1, 0] = -1
    with checking_values():
        error = refused("attend", args, page_table=table)
        assert error.headline == f"attend: page_table[1, 0] is -1, pool has {num_pages(args['batch'])} pages"
        table[1, 0], table[1, 1] = 0, -1
        attend(**{**args, "page_table": table})


@pytest.mark.parametrize("name", ["softmax_scale", "q_scale", "kv_scale"])
@pytest.mark.parametrize("value", [0.0, -0.5, math.inf, math.nan])
def test_a_scale_that_is_not_finite_and_positive_is_refused(args: dict[str, Any], name: str, value: float) -> None:
    error = refused("attend", args, **{name: value})
    assert (error.code, error.headline) == ("DSA112", f"attend: {name} is {value}")


def test_a_scale_on_rows_or_queries_that_are_not_quantised_is_refused(args: dict[str, Any]) -> None:
    error = refused("attend", args, kv_scale=0.06)
    assert str(error) == "\n".join(
        [
            "StageInputError DSA112: attend: kv_scale is 0.06, and rows of bf16 have no scale of the layer",
            "  expected  scale_is_one_unless_a_layer_has_one: kv_scale: 1 unless rows have one scale a layer (flat fp8)",
            "  where     cp_rank=0 of 2, zigzag",
            contract_and_ran(attend),
            "  try       a bf16 cache has no scale, whatever the checkpoint carries",
        ]
    )
    fp8, _ = random_args(batches()[0], FP8)
    attend(**{**fp8, "kv_scale": 0.06})
    bf16_query = local(fp8["q"].bfloat16(), Rotated, fp8["batch"])
    error = refused("attend", fp8, q=bf16_query, q_scale=0.5)
    assert (error.code, error.headline) == ("DSA112", "attend: q_scale is 0.5, and q is not quantised")
    attend(**{**fp8, "q": bf16_query, "q_scale": 1.0})


@pytest.mark.parametrize("name", ["topk_indices", "causal_lens", "request_of_row"])
def test_one_row_that_would_broadcast_is_refused(args: dict[str, Any], name: str) -> None:
    error = refused("attend", args, **{name: local(args[name][:1].clone(), state_of(args[name]), args["batch"])})
    text = f"attend: {name} has 1 rows, which is neither nnz_local 5 nor nnz_padded 6"
    assert (error.code, error.headline) == ("DSA102", text)


def test_lengths_and_requests_of_other_rows_are_refused_where_their_values_are_read(args: dict[str, Any]) -> None:
    batch = args["batch"]
    with checking_values():
        error = refused("attend", args, causal_lens=local(batch.causal_lens[:5].clone(), KeyCounts, batch))
        assert (error.code, error.headline) == ("DSA117", "attend: causal_lens[2] is 5, for row 7 it is 1")
        error = refused("attend", args, request_of_row=local(batch.request_of_row[:5].clone(), RequestIds, batch))
        assert (error.code, error.headline) == ("DSA119", "attend: request_of_row[2] is 0, for row 7 it is 1")


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (4, "attend: topk_indices[1, 2] is 4, row 1 sees 4 keys"),
        (-2, "attend: topk_indices[1, 2] is -2, row 1 sees 4 keys"),
    ],
)
def test_an_entry_past_the_length_of_its_row_is_refused_where_values_are_read(
    args: dict[str, Any], entry: int, text: str
) -> None:
    topk = args["topk_indices"].clone()
    topk[1, 2] = entry
    with checking_values():
        error = refused("attend", args, topk_indices=local(topk, KeyIds, args["batch"]))
        topk[1, 2] = 3
        attend(**{**args, "topk_indices": local(topk.clone(), KeyIds, args["batch"])})
    assert (error.code, error.headline) == ("DSA118", text)


def test_padding_rows_are_inert_whatever_their_queries_hold() -> None:
    batch = batches(Zigzag(), 2, [7], [0], padded_lens=[8])[0]
    real = valid_args("attend", batch)
    q, topk = torch.full((4, HEADS, 12), math.nan).bfloat16(), torch.full((4, 3), -1, dtype=torch.int32)
    q[:3], topk[:3] = real["q"], real["topk_indices"]
    rows = {
        "q": local(q, Rotated, batch),
        "topk_indices": local(topk, KeyIds, batch),
        "causal_lens": local(torch.tensor([1, 2, 7, 0], dtype=torch.int32), KeyCounts, batch),
        "request_of_row": local(torch.zeros(4, dtype=torch.int32), RequestIds, batch),
    }
    with checking_values():
        out, lse = attend(**{**real, **rows})
    want, want_lse = attend(**real)
    assert torch.equal(out[:3], want)
    assert torch.equal(lse[:3], want_lse)
    assert (out[3].tolist(), lse[3].tolist()) == ([[0.0] * 8] * HEADS, [-math.inf] * HEADS)


def without_keys(args: dict[str, Any]) -> dict[str, Any]:
    """The same call, in which row 2 attends to nothing."""
    topk = args["topk_indices"].clone()
    topk[2] = -1
    return {**args, "topk_indices": local(topk, KeyIds, args["batch"])}


@pytest.mark.parametrize(("out_of_empty", "lse_of_empty"), [(0.0, 0.0), (math.nan, -math.inf), (5.0, -math.inf)])
def test_an_empty_row_that_is_not_inert_is_refused_as_a_result(
    args: dict[str, Any], out_of_empty: float, lse_of_empty: float
) -> None:
    def kernel(given: dict[str, Any]) -> tuple[Tensor, Tensor]:
        out, lse = torch.ones(5, HEADS, 8), torch.zeros(5, HEADS)
        out[2], lse[2] = out_of_empty, lse_of_empty
        return out, lse

    call = without_keys(args)
    faulty("attend", kernel)(**call)
    with checking_values():
        error = refusal(faulty("attend", kernel), **call)
        attend(**call)
    text = "attend: row 2 attends to nothing, its out is not 0 or its lse not -inf"
    assert (error.code, error.headline) == ("DSA121", text)
