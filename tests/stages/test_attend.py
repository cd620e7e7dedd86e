import math
from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import Layout, checking_values
from dsa_contracts.core import marks
from dsa_contracts.dsa.row_formats import RowFormat, bf16_format, fp8_656_format, fp8_format
from dsa_cp.layouts import Interleave, VllmZigzag, Zigzag
from dsa_cp.stages import attend
from tests.support.branded import batches, pool_of
from tests.support.stage_values import args_of, attend_row, random_args, request_values, values_of

FORMATS: list[RowFormat[Any, Any, Any]] = [bf16_format(8, 4), fp8_format(8, 4), fp8_656_format(128, 4)]
each_format = pytest.mark.parametrize("row_format", FORMATS, ids=lambda row_format: row_format.name)


def check_rows(args: dict[str, Any], rows: Tensor) -> None:
    """Compare every row with a float64 loop: 2e-6 of the largest value, some units of float32."""
    with checking_values():
        out, lse = attend(**args)
    batch, row_format, rank = args["batch"], args["row_format"], args["row_format"].part("k_nope").count
    keys = [request_values(batch, row_format, rows, request) * args["kv_scale"] for request in range(batch.num_requests)]
    scale = args["softmax_scale"] * args["q_scale"]
    for at, chosen in enumerate(args["topk_indices"].tolist()):
        own = keys[int(args["request_of_row"][at])]
        expected, denominators = attend_row(values_of(args["q"][at]), own, [key for key in chosen if key >= 0], scale, rank)
        torch.testing.assert_close(out[at].double(), expected, rtol=0, atol=2e-6 * max(1.0, float(own.abs().max())))
        torch.testing.assert_close(lse[at].double(), torch.tensor(denominators).double(), rtol=2e-6, atol=2e-6)


@each_format
@pytest.mark.parametrize("rows", [1, 7, 127])
def test_rows_of_one_request_are_those_of_a_float64_loop(rows: int, row_format: RowFormat[Any, Any, Any]) -> None:
    (batch,) = batches(Zigzag(), 1, [rows], [3])
    check_rows(*random_args(batch, row_format))


@each_format
@pytest.mark.parametrize("layout", [Zigzag(), Interleave(block=3), VllmZigzag()], ids=lambda layout: layout.name)
def test_many_requests_with_prefixes_on_shuffled_pages(layout: Layout, row_format: RowFormat[Any, Any, Any]) -> None:
    for batch in batches(layout, 3, [1, 21, 6, 2], [9, 0, 13, 30]):
        check_rows(*random_args(batch, row_format))


@pytest.mark.parametrize("page_size", [1, 64])
def test_pages_of_1_and_64_slots(page_size: int) -> None:
    for batch in batches(Zigzag(), 2, [70, 5], [0, 61], page_size=page_size):
        check_rows(*random_args(batch, FORMATS[0]))


def test_more_rows_than_a_block_of_the_reference_and_more_entries_than_keys() -> None:
    (batch,) = batches(Zigzag(), 1, [300], [0], page_size=64)
    check_rows(*random_args(batch, FORMATS[0], width=40))


def by_hand(q: list[float], keys: list[list[float]], topk: list[list[int]], **changes: Any) -> tuple[Any, Any]:
    """One request of which every row has the same query, one head, keys of two latent elements and two rope elements."""
    (batch,) = batches(Zigzag(), 1, [len(keys)], [0])
    rows = torch.tensor(keys).bfloat16().view(torch.uint8)
    query = torch.tensor(q).bfloat16().expand(len(keys), 1, -1)
    args = {**args_of(batch, bf16_format(2, 2), rows, torch.tensor(topk), query), "softmax_scale": 1.0}
    out, lse = attend(**{**args, **changes})
    return out[:, 0].tolist(), lse[:, 0].tolist()


def test_equal_scores_give_the_mean_of_the_latents_by_hand() -> None:
    keys = [[4.0, 0.0, 1.0, 0.0], [0.0, 8.0, 1.0, 0.0], [100.0, 100.0, 9.0, 9.0]]
    out, lse = by_hand([0.0, 0.0, 2.0, 0.0], keys, [[0, -1], [0, 1], [1, -1]])
    assert out == [[4.0, 0.0], [2.0, 4.0], [0.0, 8.0]]
    assert lse == [2.0, pytest.approx(2.0 + math.log(2.0), abs=1e-6), 2.0]


def test_latent_and_rope_part_both_count_in_the_score_and_the_latent_alone_in_the_output() -> None:
    keys = [[1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 0.0]]
    out, lse = by_hand([1.0, 1.0, 1.0, 1.0], keys, [[0], [0]], softmax_scale=0.5)
    assert (out, lse) == ([[1.0, 2.0], [1.0, 2.0]], [5.0, 5.0])


def test_a_row_without_keys_has_out_0_and_lse_minus_infinity() -> None:
    out, lse = by_hand([1.0, 0.0, 0.0, 0.0], [[5.0, 6.0, 0.0, 0.0], [7.0, 8.0, 0.0, 0.0]], [[-1, -1], [0, -1]])
    assert (out, lse) == ([[0.0, 0.0], [5.0, 6.0]], [-math.inf, 5.0])


def test_an_entry_that_stands_twice_counts_once_and_one_past_the_row_counts_for_nothing() -> None:
    keys = [[1.0, 0.0, 0.0, 0.0], [3.0, 0.0, 0.0, 0.0]]
    out, lse = by_hand([0.0, 0.0, 0.0, 0.0], keys, [[0, 1, 1], [1, 0, 1]])
    assert (out, lse) == ([[1.0, 0.0], [2.0, 0.0]], [0.0, pytest.approx(math.log(2.0))])


def test_scores_that_no_exponential_holds_do_not_overflow() -> None:
    keys = [[1.0, 0.0, 20.0, 0.0], [2.0, 0.0, -20.0, 0.0]]
    out, lse = by_hand([0.0, 0.0, 100.0, 0.0], keys, [[0, -1], [0, 1]])
    assert (out, lse) == ([[1.0, 0.0], [1.0, 0.0]], [2000.0, 2000.0])
    out, lse = by_hand([0.0, 0.0, 100.0, 0.0], keys, [[-1, -1], [1, -1]])
    assert (out[1], lse[1]) == ([2.0, 0.0], -2000.0)


def test_bf16_output_is_the_float32_output_rounded_once_and_lse_stays_float32() -> None:
    args, _ = random_args(batches()[1], FORMATS[0])
    out, lse = attend(**args)
    rounded, same = attend(**{**args, "out_dtype": marks.BF16})
    assert rounded.dtype == torch.bfloat16
    assert torch.equal(rounded, out.bfloat16())
    assert torch.equal(same, lse)


@each_format
def test_no_bit_of_a_slot_that_no_request_owns_reaches_an_output(row_format: RowFormat[Any, Any, Any]) -> None:
    args, _ = random_args(batches(Zigzag(), 2, [9, 3], [2, 7])[0], row_format)
    assert bool((args["pool"] == 0xFF).all(dim=-1).any())
    zeros = args["pool"].clone()
    zeros.view(-1, zeros.shape[-1])[(zeros.view(-1, zeros.shape[-1]) == 0xFF).all(dim=-1)] = 0
    for poisoned, clean in zip(attend(**args), attend(**{**args, "pool": pool_of(zeros, row_format.mark)}), strict=True):
        assert torch.equal(poisoned, clean)
        assert not bool(poisoned.isnan().any())


@each_format
def test_a_nan_key_reaches_the_rows_that_attend_to_it_and_no_other(row_format: RowFormat[Any, Any, Any]) -> None:
    args, _ = random_args(batches(Zigzag(), 1, [40], [0])[0], row_format)
    poisoned = args["pool"].clone()
    slot = int(args["page_table"][0, 5 // 4]) * 4 + 5 % 4
    poisoned.view(-1, poisoned.shape[-1])[slot] = 0xFF
    attends = (args["topk_indices"] == 5).any(dim=1)
    assert 0 < int(attends.sum()) < 35
    for got, want in zip(attend(**{**args, "pool": pool_of(poisoned, row_format.mark)}), attend(**args), strict=True):
        assert torch.equal(got[~attends], want[~attends])
        assert bool(got[attends].isnan().all())
