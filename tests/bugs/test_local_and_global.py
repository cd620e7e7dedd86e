"""B05, B06, B19, B40: arrays of one call that count different rows or requests, or belong to another batch."""

import pytest
import torch

from dsa_contracts import checking_values
from dsa_contracts.dsa.states import Fp8Row, KeyCounts, KeyIds, RequestIds, Rotated
from dsa_cp.layer.local_batch import padded_local_batch
from dsa_cp.layouts import Interleave
from dsa_cp.stages import attend
from tests.support.branded import TOPK, WIDE, batches, local, pool_of, state_of
from tests.support.messages import contract_and_ran
from tests.support.stage_calls import call, refused, valid_args


@pytest.mark.parametrize("name", ["topk_indices", "causal_lens", "request_of_row"])
@pytest.mark.parametrize("rows", [1, 2, 9])
def test_b05_a_row_array_of_another_length_is_refused_and_one_row_does_not_broadcast(name: str, rows: int) -> None:
    batch = batches(Interleave(), 2, [16], [0])[0]
    args = valid_args("attend", batch)
    other = torch.zeros(rows, *args[name].shape[1:], dtype=torch.int32)
    error = refused("attend", args, **{name: local(other, state_of(args[name]), batch)})
    text = f"attend: {name} has {rows} rows, which is neither nnz_local 8 nor nnz_padded 8"
    assert (error.code, error.headline) == ("DSA102", text)
    call("attend", args)


def test_b05_padded_and_unpadded_rows_do_not_mix_and_padding_chooses_nothing() -> None:
    batch = batches(Interleave(), 2, [5], [0], row_alignment=8)[1]
    args, padded = valid_args("attend", batch), padded_local_batch(batch)
    assert (batch.nnz_local, batch.nnz_padded) == (2, 8)
    error = refused("attend", args, causal_lens=padded.causal_lens)
    assert (error.code, error.headline) == ("DSA102", "attend: causal_lens has 8 rows, q has 2")
    assert padded.causal_lens.tolist() == [2, 4, 0, 0, 0, 0, 0, 0]
    topk = torch.full((8, TOPK), -1, dtype=torch.int32)
    topk[2, 0] = 0
    rows = {
        "q": local(args["q"].new_zeros(8, *args["q"].shape[1:]), Rotated, batch),
        "causal_lens": padded.causal_lens,
        "request_of_row": padded.request_of_row,
    }
    with checking_values():
        error = refused("attend", args, **rows, topk_indices=local(topk, KeyIds, batch))
        call("attend", args, **rows, topk_indices=local(torch.full_like(topk, -1), KeyIds, batch))
    assert (error.code, error.headline) == ("DSA118", "attend: topk_indices[2, 0] is 0, row 2 sees 0 keys")


def test_b06_a_page_table_of_the_requests_on_this_rank_does_not_go_with_lengths_of_all() -> None:
    # The one token of request 1 is on rank 0 alone.
    batch = batches(Interleave(), 4, [8, 1], [0, 0])[1]
    args = valid_args("attend", batch)
    error = refused("attend", args, page_table=args["page_table"][:1])
    assert str(error) == "\n".join(
        [
            (
                "StageInputError DSA102: attend: page_table has 1 rows, num_requests is 2,"
                " bound by batch (interleave, cp_rank 1 of 4)"
            ),
            (
                "  expected  i32[num_requests max_pages] Contiguous, PerRequest, PageIds;"
                " num_requests=2, bound by batch (interleave, cp_rank 1 of 4)"
            ),
            "  got       i32[1, 3] strides (3, 1) cpu",
            "  where     cp_rank=1 of 4, interleave",
            contract_and_ran(attend),
            "  try       q, topk_indices, causal_lens and request_of_row are this rank's rows, one each; nothing broadcasts",
        ]
    )


def test_b06_a_row_finds_its_request_in_the_table_of_all_requests() -> None:
    ranks = batches(Interleave(), 4, [8, 1], [0, 0])
    assert [batch.local_request_of_row.tolist() for batch in ranks] == [[0, 0, 1], [0, 0], [0, 0], [0, 0]]
    last = batches(Interleave(), 8, [4000, 5], [0, 0], page_size=64)
    assert [int((batch.local_request_of_row == 1).sum()) for batch in last] == [1, 1, 1, 1, 1, 0, 0, 0]
    with checking_values():
        for batch in ranks:
            call("attend", valid_args("attend", batch))


def test_b06_lengths_of_all_requests_are_not_lengths_of_this_ranks_rows() -> None:
    batch = batches(Interleave(), 4, [8, 1], [0, 0])[1]
    args = valid_args("attend", batch)
    lens_of_requests = torch.tensor([8, 1], dtype=torch.int32)
    with checking_values():
        error = refused("attend", args, causal_lens=local(lens_of_requests, KeyCounts, batch))
    assert (error.code, error.headline) == ("DSA117", "attend: causal_lens[0] is 8, for row 1 it is 2")


def test_b19_a_request_map_of_more_rows_than_there_are_queries_is_refused() -> None:
    (batch,) = batches(Interleave(), 1, [1, 1], [3, 4])
    args = valid_args("attend", batch)
    whole = torch.tensor([0, 1, 0, 0, 1, 1], dtype=torch.int32)
    error = refused("attend", args, request_of_row=local(whole, RequestIds, batch))
    text = "attend: request_of_row has 6 rows, which is neither nnz_local 2 nor nnz_padded 2"
    assert (error.code, error.headline) == ("DSA102", text)
    call("attend", args, request_of_row=local(whole[:2].clone(), RequestIds, batch))


def test_b19_rows_with_scales_inside_are_not_read_as_flat_fp8() -> None:
    batch = batches()[0]
    args = valid_args("split_kv", batch)
    rows = torch.zeros(batch.nnz_local, WIDE.row_bytes, dtype=torch.uint8)
    error = refused("split_kv", args, kv=rows)
    text = f"split_kv: kv is {WIDE.row_bytes} bytes wide, a row of fp8 has 12"
    assert (error.code, error.headline) == ("DSA110", text)
    error = refused("attend", valid_args("attend", batch), row_format=WIDE)
    text = f"attend: pool is Packed[Bf16Row, Rotated], not Packed[{WIDE.mark.__name__}, Rotated]"
    assert (error.code, error.headline) == ("DSA107", text)
    pool = pool_of(torch.zeros(7, 4, WIDE.row_bytes, dtype=torch.uint8), Fp8Row)
    error = refused("attend", valid_args("attend", batch), pool=pool)
    text = "attend: pool is Packed[Fp8Row, Rotated], not Packed[Bf16Row, Rotated]"
    assert (error.code, error.headline) == ("DSA107", text)


def test_b40_a_request_map_of_an_earlier_batch_is_refused_by_its_brand() -> None:
    target, draft = batches(Interleave(), 1, [4, 4, 4], [0, 0, 0])[0], batches(Interleave(), 1, [1, 1, 1], [4, 4, 4])[0]
    assert target.local_request_of_row.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    assert draft.local_request_of_row.tolist() == [0, 1, 2]
    args = valid_args("attend", draft)
    stale = local(target.local_request_of_row[:3].clone(), RequestIds, target)
    error = refused("attend", args, request_of_row=stale)
    assert (error.code, error.headline) == ("DSA108", "attend: request_of_row was made for another batch")


def test_b40_a_request_map_of_an_earlier_batch_is_refused_by_its_values_where_nothing_brands_it() -> None:
    (draft,) = batches(Interleave(), 1, [1, 1, 1], [4, 4, 4])
    args = valid_args("attend", draft)
    with checking_values():
        error = refused("attend", args, request_of_row=torch.tensor([0, 0, 0], dtype=torch.int32))
        call("attend", args, request_of_row=torch.tensor([0, 1, 2], dtype=torch.int32))
    assert (error.code, error.headline) == ("DSA119", "attend: request_of_row[1] is 0, for row 1 it is 1")


def test_b40_a_page_table_of_an_earlier_batch_is_refused_as_well() -> None:
    (target,), (draft,) = batches(Interleave(), 1, [4, 4, 4], [0, 0, 0]), batches(Interleave(), 1, [1, 1, 1], [4, 4, 4])
    error = refused("attend", valid_args("attend", draft), page_table=target.page_table)
    assert (error.code, error.headline) == ("DSA108", "attend: page_table was made for another batch")
