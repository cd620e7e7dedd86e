import pytest
import torch

from dsa_contracts import Layout, brand_of, checking_values
from dsa_contracts.core.marks import mark_text
from dsa_contracts.dsa.states import Bf16Row, Packed, Rotated
from dsa_cp.layouts import Interleave, VllmReplicated, VllmZigzag, Zigzag
from dsa_cp.stages import restore_order
from tests.support.branded import batches, gathered, in_sequence, local
from tests.support.messages import contract_and_ran
from tests.support.stage_calls import faulty, refusal, refused, valid_args

STATE = Packed[Bf16Row, Rotated]


def restored(layout: Layout, cp_size: int, extend: list[int], rows: list[int]) -> list[list[int]]:
    """What each rank gets for gathered rows of one byte."""
    made = batches(layout, cp_size, extend, [0] * len(extend))
    bytes_ = torch.tensor(rows, dtype=torch.uint8)[:, None]
    return [restore_order(gathered(bytes_.clone(), STATE, batch), batch).flatten().tolist() for batch in made]


def test_one_request_of_eight_on_two_ranks() -> None:
    tokens = [0, 1, 2, 3, 4, 5, 6, 7]
    assert restored(Zigzag(), 2, [8], [0, 1, 6, 7, 2, 3, 4, 5]) == [tokens, tokens]
    assert restored(Interleave(), 2, [8], [0, 2, 4, 6, 1, 3, 5, 7]) == [tokens, tokens]


def test_vllms_example_of_seven_tokens() -> None:
    assert restored(VllmZigzag(), 2, [7], [*b"ABG_CDEF"]) == [[*b"ABCDEFG"]] * 2


def test_padding_is_dropped_wherever_it_stands() -> None:
    made = batches(Zigzag(), 2, [3, 1], [0, 0], padded_lens=[4, 4], row_alignment=6)
    assert made[0].padded_rows.tolist() == [0, 3, -1, -1, -1, -1]
    assert made[1].padded_rows.tolist() == [1, -1, 2, -1, -1, -1]
    rows = torch.tensor([0, 3, 9, 9, 9, 9, 1, 9, 2, 9, 9, 9], dtype=torch.uint8)[:, None]
    for batch in made:
        assert restore_order(gathered(rows.clone(), STATE, batch), batch).flatten().tolist() == [0, 1, 2, 3]


def test_of_replicated_rows_the_written_copy_is_taken() -> None:
    assert restored(VllmReplicated(), 2, [3], [10, 11, 12, 20, 21, 22]) == [[10, 11, 12]] * 2


def test_ranks_without_a_token_have_only_padding() -> None:
    assert restored(Interleave(), 4, [2], [7, 8, 9, 9]) == [[7, 8]] * 4


def test_the_state_of_the_rows_is_passed_on_in_sequence_order() -> None:
    batch = batches()[0]
    brand = brand_of(restore_order(**valid_args("restore_order", batch)))
    assert brand is not None
    assert mark_text(brand.kind.rows) == "Global[Sequence]"
    assert mark_text(brand.kind.state) == "Packed[Bf16Row, Rotated]"


@pytest.mark.parametrize("rows", [11, 6, 5])
def test_another_number_of_rows_is_refused(rows: int) -> None:
    batch = batches()[0]
    error = refused("restore_order", valid_args("restore_order", batch), gathered=torch.zeros(rows, 4, dtype=torch.uint8))
    bound = "nnz_gathered is 12, bound by batch (zigzag, cp_rank 0 of 2)"
    assert (error.code, error.headline) == ("DSA102", f"restore_order: gathered has {rows} rows, {bound}")


def test_rows_in_sequence_order_and_rows_of_this_rank_are_refused_where_their_number_fits() -> None:
    (batch,) = batches(Zigzag(), 1, [8], [0])
    rows = torch.zeros(8, 4, dtype=torch.uint8)
    error = refused("restore_order", valid_args("restore_order", batch), gathered=in_sequence(rows, STATE, batch))
    assert str(error) == "\n".join(
        [
            "StageInputError DSA106: restore_order: gathered holds Global[Sequence] rows, not Global[RankMajor[Zigzag]]",
            (
                "  expected  u8[nnz_gathered row_bytes] Contiguous, Global[RankMajor[L]], S;"
                " nnz_gathered=8, bound by batch (zigzag, cp_rank 0 of 1)"
            ),
            "  got       u8[8, 4] strides (4, 1) cpu",
            "  because   its brand: Global[Sequence], Packed[Bf16Row, Rotated], from test",
            "  where     cp_rank=0 of 1, zigzag",
            contract_and_ran(restore_order),
            "  try       restore_order takes what all_gather_kv of the same batch returned",
        ]
    )
    error = refused("restore_order", valid_args("restore_order", batch), gathered=local(rows.clone(), STATE, batch))
    assert error.headline == "restore_order: gathered holds Local[Zigzag] rows, not Global[RankMajor[Zigzag]]"


def test_rows_that_another_batch_gathered_are_refused() -> None:
    batch, old = batches()[0], batches()[0]
    error = refused(
        "restore_order", valid_args("restore_order", batch), gathered=valid_args("restore_order", old)["gathered"]
    )
    assert (error.code, error.headline) == ("DSA108", "restore_order: gathered was made for another batch")


def test_an_implementation_that_only_trims_the_padding_is_refused_by_value() -> None:
    batch = batches(Zigzag(), 2, [8], [0])[0]
    rows = torch.tensor([0, 1, 6, 7, 2, 3, 4, 5], dtype=torch.uint8)[:, None]
    trims = faulty("restore_order", lambda args: args["gathered"][args["batch"].gathered_rows >= 0].contiguous())
    with checking_values():
        error = refusal(trims, gathered(rows, STATE, batch), batch)
        assert (error.code, error.headline) == ("DSA119", "restore_order: restored row 2 is not gathered row 4")
        restore_order(gathered(rows, STATE, batch), batch)
