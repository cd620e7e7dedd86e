from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import CpBatch, Layout, checking_values
from dsa_contracts.core.marks import Plain
from dsa_contracts.dsa.row_formats import RowFormat, index_bf16_format, index_fp8_format
from dsa_contracts.dsa.states import KeyCounts, RequestIds, Rotated
from dsa_cp.layouts import Interleave, VllmZigzag, Zigzag
from dsa_cp.stages import select_topk
from tests.support.branded import INDEX, INDEX_DIM, batches, local, normal, num_pages, pool_of
from tests.support.messages import contract_and_ran
from tests.support.stage_calls import faulty, refusal, refused, valid_args
from tests.support.stage_values import best_keys, filled_pool, packed_rows, request_values

FORMATS: list[RowFormat[Any, Any, Any]] = [index_bf16_format(INDEX_DIM), index_fp8_format(INDEX_DIM)]
TENS = index_bf16_format(2)


def by_score(scores: list[int], count: int, *, weight: float = 1.0, page_size: int = 4) -> list[list[int]]:
    """Top-k of every row of one request, whose key i scores `scores[i]` in every row."""
    (batch,) = batches(Zigzag(), 1, [len(scores)], [0], page_size=page_size)
    rows = torch.tensor([[score, 0.0] for score in scores]).bfloat16().view(torch.uint8)
    q = torch.zeros(len(scores), 1, 2)
    q[..., 0] = 1.0
    args = {
        **valid_args("select_topk", batch),
        "q_index": local(q.bfloat16(), Rotated, batch),
        "head_weights": local(torch.full((len(scores), 1), weight), Plain, batch),
        "pool": pool_of(filled_pool(batch, rows), TENS.mark),
        "index_topk": count,
        "row_format": TENS,
    }
    with checking_values():
        found: list[list[int]] = select_topk(**args).tolist()
    return found


def test_rows_that_see_no_more_than_topk_keys_take_all_and_later_rows_the_best() -> None:
    assert by_score([1, 5, 3, 4, 2], 3) == [[0, -1, -1], [0, 1, -1], [0, 1, 2], [1, 2, 3], [1, 2, 3]]


def test_entries_rise_and_a_later_key_is_never_chosen() -> None:
    assert by_score([9, 1, 8, 100], 2)[2] == [0, 2]
    assert by_score([1, 2, 3, 4], 1) == [[0], [1], [2], [3]]


def test_of_equal_scores_the_earlier_key_is_taken() -> None:
    assert by_score([2, 7, 2, 2, 7, 2], 3)[-1] == [0, 1, 4]
    assert by_score([0, 0, 0, 0], 2)[-1] == [0, 1]
    assert by_score([-1, -2, -3], 2)[-1] == [0, 1]  # relu makes all of them 0


def test_negative_weights_turn_the_order_round() -> None:
    assert by_score([1, 5, 3, 4], 2, weight=-1.0)[-1] == [0, 2]


def test_a_width_above_the_number_of_keys_is_filled_with_minus_1() -> None:
    assert by_score([3, 1], 4) == [[0, -1, -1, -1], [0, 1, -1, -1]]


@pytest.mark.parametrize("page_size", [1, 64])
def test_pages_of_1_and_64_slots(page_size: int) -> None:
    assert by_score([1, 5, 3, 4, 2], 3, page_size=page_size)[-1] == [1, 2, 3]


def random_args(batch: CpBatch[Any], row_format: RowFormat[Any, Any, Any], rows: Tensor, count: int) -> dict[str, Any]:
    """Queries drawn for the whole batch and taken by row, so that they are the same on every rank."""
    queries, weights = normal(batch.nnz, 3, INDEX_DIM), normal(batch.nnz, 3, seed=8).float()
    return {
        **valid_args("select_topk", batch),
        "q_index": local(queries[batch.local_rows], Rotated, batch),
        "head_weights": local(weights[batch.local_rows], Plain, batch),
        "pool": pool_of(filled_pool(batch, rows), row_format.mark),
        "index_topk": count,
        "row_format": row_format,
    }


@pytest.mark.parametrize("row_format", FORMATS, ids=lambda row_format: row_format.name)
@pytest.mark.parametrize("layout", [Zigzag(), Interleave(block=3), VllmZigzag()], ids=lambda layout: layout.name)
def test_choice_is_that_of_a_loop_over_rows_for_many_requests(layout: Layout, row_format: RowFormat[Any, Any, Any]) -> None:
    extend, prefix, count = [1, 30, 7, 2], [9, 0, 25, 60], 5
    rows = packed_rows(row_format, sum(extend) + sum(prefix))
    for batch in batches(layout, 3, extend, prefix):
        args = random_args(batch, row_format, rows, count)
        with checking_values():
            topk = select_topk(**args)
        for at, chosen in enumerate(topk.tolist()):
            request, visible = int(args["request_of_row"][at]), int(args["causal_lens"][at])
            keys = request_values(batch, row_format, rows, request)
            q, weights = args["q_index"][at].double(), args["head_weights"][at].double()
            best = best_keys(q, weights, keys, visible, count)
            assert chosen == best + [-1] * (count - len(best))


def test_more_rows_than_a_block_of_the_reference() -> None:
    (batch,) = batches(Zigzag(), 1, [300], [0], page_size=64)
    rows = packed_rows(INDEX, 300)
    args = random_args(batch, INDEX, rows, 7)
    topk, keys = select_topk(**args), request_values(batch, INDEX, rows, 0)
    for at in (6, 7, 127, 128, 129, 255, 299):
        best = best_keys(args["q_index"][at].double(), args["head_weights"][at].double(), keys, at + 1, 7)
        assert topk[at].tolist() == best


def test_a_nan_key_is_chosen_last_and_costs_no_other_row_its_choice() -> None:
    nan = float("nan")
    assert by_score([5, 1, nan, 3, 4], 3) == [  # type: ignore[list-item]
        [0, -1, -1],
        [0, 1, -1],
        [0, 1, 2],
        [0, 1, 3],
        [0, 3, 4],
    ]


def test_padding_rows_choose_nothing_whatever_their_queries_hold() -> None:
    batch = batches(Zigzag(), 2, [7], [0], padded_lens=[8])[0]
    real = valid_args("select_topk", batch)
    queries, weights = torch.full((4, 2, INDEX_DIM), float("nan")).bfloat16(), torch.full((4, 2), float("nan"))
    queries[:3], weights[:3] = real["q_index"], real["head_weights"]
    args = {
        **real,
        "q_index": local(queries, Rotated, batch),
        "head_weights": local(weights, Plain, batch),
        "causal_lens": local(torch.tensor([1, 2, 7, 0], dtype=torch.int32), KeyCounts, batch),
        "request_of_row": local(torch.zeros(4, dtype=torch.int32), RequestIds, batch),
    }
    with checking_values():
        topk = select_topk(**args)
    assert topk.tolist() == [*select_topk(**real).tolist(), [-1, -1, -1]]


@pytest.mark.parametrize("count", [0, -1])
def test_a_choice_of_less_than_one_key_is_refused(count: int) -> None:
    error = refused("select_topk", valid_args("select_topk", batches()[0]), index_topk=count)
    assert (error.code, error.headline) == ("DSA124", f"select_topk: index_topk is {count}")


def test_queries_of_another_width_than_the_keys_are_refused() -> None:
    batch = batches()[0]
    error = refused("select_topk", valid_args("select_topk", batch), q_index=local(normal(5, 2, 6), Rotated, batch))
    text = "select_topk: q_index is 6 wide, k_index of index_bf16 has 8 elements"
    assert (error.code, error.headline) == ("DSA124", text)


def test_a_pool_of_another_format_or_page_size_is_refused() -> None:
    batch = batches()[0]
    args = valid_args("select_topk", batch)
    error = refused("select_topk", args, row_format=index_bf16_format(6), q_index=local(normal(5, 2, 6), Rotated, batch))
    assert (error.code, error.headline) == ("DSA110", "select_topk: pool is 16 bytes wide, a row of index_bf16 has 12")
    error = refused("select_topk", args, pool=pool_of(args["pool"].view(-1, 1, 16), INDEX.mark))
    assert (error.code, error.headline) == ("DSA114", "select_topk: pool has pages of 1 slots, the batch has page_size 4")


def test_a_page_table_that_is_too_narrow_or_names_no_page_of_the_pool_is_refused() -> None:
    batch = batches()[0]
    args = valid_args("select_topk", batch)
    error = refused("select_topk", args, page_table=args["page_table"][:, :2].contiguous())
    text = "select_topk: page_table has 2 columns of 4 slots, the longest request has 9 keys"
    assert (error.code, error.headline) == ("DSA114", text)
    table = args["page_table"].clone()
    table[0, 2] = num_pages(batch)
    with checking_values():
        error = refused("select_topk", args, page_table=table)
        assert error.headline == "select_topk: page_table[0, 2] is 7, pool has 7 pages"
        own = args["page_table"][0, 2]
        table[0, 2] = (own + 1) % 6
        error = refused("select_topk", args, page_table=table)
        assert error.headline == f"select_topk: page_table[0, 2] is {int(table[0, 2])}, the batch has page {int(own)}"
        table[0, 2], table[0, 3] = own, -1
        select_topk(**{**args, "page_table": table})


def test_lengths_and_requests_of_other_rows_are_refused_where_their_values_are_read() -> None:
    batch = batches()[0]
    args = valid_args("select_topk", batch)
    assert (args["causal_lens"].tolist(), args["request_of_row"].tolist()) == ([3, 4, 1, 9, 4], [0, 0, 1, 0, 1])
    with checking_values():
        error = refused("select_topk", args, causal_lens=local(batch.causal_lens[:5].clone(), KeyCounts, batch))
        assert str(error) == "\n".join(
            [
                "StageInputError DSA117: select_topk: causal_lens[2] is 5, for row 7 it is 1",
                "  expected  causal_lens_match_rows: causal_lens[i] = batch.causal_lens[row of i], 0 for padding",
                "  where     cp_rank=0 of 2, zigzag",
                contract_and_ran(select_topk),
                "  try       pass the lengths that reorder_causal_lens returned for these rows",
            ]
        )
        error = refused("select_topk", args, request_of_row=local(batch.request_of_row[:5].clone(), RequestIds, batch))
        assert (error.code, error.headline) == ("DSA119", "select_topk: request_of_row[2] is 0, for row 7 it is 1")


def test_a_chosen_key_past_the_length_of_its_row_is_refused_as_a_result() -> None:
    args = valid_args("select_topk", batches()[0])
    counted = faulty("select_topk", lambda given: torch.arange(3, dtype=torch.int32).expand(5, -1).contiguous())
    with checking_values():
        error = refusal(counted, **args)
    assert (error.code, error.headline) == ("DSA118", "select_topk: topk_indices[2, 1] is 1, row 2 sees 1 keys")
