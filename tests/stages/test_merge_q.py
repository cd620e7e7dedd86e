from typing import Any

import torch
from torch import Tensor

from dsa_contracts.core.marks import Plain
from dsa_contracts.dsa.states import Raw, Rotated
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import merge_q
from tests.support.branded import HEADS, RANK, ROPE, batches, local, normal
from tests.support.messages import contract_and_ran
from tests.support.stage_calls import faulty, refusal, refused, valid_args


def test_latent_stands_before_the_rope_part() -> None:
    (batch,) = batches(Zigzag(), 1, [2], [0])
    q_nope = local(torch.tensor([[[1, 2]], [[3, 4]]]).bfloat16(), Plain, batch)
    q_rope = local(torch.tensor([[[5, 6]], [[7, 8]]]).bfloat16(), Rotated, batch)
    assert merge_q(q_nope, q_rope, batch).tolist() == [[[1, 2, 5, 6]], [[3, 4, 7, 8]]]


def test_parts_may_be_column_slices_of_one_projection() -> None:
    batch = batches()[1]
    whole = normal(batch.nnz_local, HEADS, RANK + ROPE)
    merged = merge_q(local(whole[..., :RANK], Plain, batch), local(whole[..., RANK:], Rotated, batch), batch)
    assert torch.equal(merged, whole)
    assert merged.is_contiguous()
    assert merged.data_ptr() != whole.data_ptr()


def test_bits_are_kept_where_they_are_nan() -> None:
    batch = batches()[0]
    args = valid_args("merge_q", batch)
    bits = torch.full((batch.nnz_local, HEADS, ROPE), -59, dtype=torch.int16)
    merged = merge_q(args["q_nope"], local(bits.view(torch.bfloat16), Rotated, batch), batch)
    assert torch.equal(merged[..., RANK:].view(torch.int16), bits)


def test_raw_queries_are_refused() -> None:
    batch = batches()[0]
    args = valid_args("merge_q", batch)
    error = refused("merge_q", args, q_rope=local(args["q_rope"].clone(), Raw, batch))
    assert str(error) == "\n".join(
        [
            "StageInputError DSA107: merge_q: q_rope is Raw, not Rotated",
            (
                "  expected  bf16[N num_local_heads qk_rope_head_dim] UnitLast, Local[L], Rotated;"
                " nnz_local=5, bound by batch (zigzag, cp_rank 0 of 2); nnz_padded=6, bound by batch (zigzag, cp_rank 0 of 2)"
            ),
            "  got       bf16[5, 2, 4] strides (8, 4, 1) cpu",
            "  because   its brand: Local[Zigzag], Raw, zigzag, from test",
            "  where     cp_rank=0 of 2, zigzag",
            contract_and_ran(merge_q),
            "  try       apply RoPE to q_rope before merging; attend takes rotated queries",
        ]
    )


def test_a_merged_query_of_another_width_is_refused_as_a_result() -> None:
    def latent_only(args: dict[str, Any]) -> Tensor:
        merged: Tensor = args["q_nope"].clone()
        return merged

    batch = batches()[0]
    error = refusal(faulty("merge_q", latent_only), **valid_args("merge_q", batch))
    assert (error.code, error.headline) == ("DSA124", "merge_q: q is 8 wide, q_nope + q_rope are 12")
    whole = faulty("merge_q", lambda args: torch.zeros(batch.nnz_local, HEADS, RANK + ROPE).bfloat16())
    whole(**valid_args("merge_q", batch))
