from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import CpBatch, checking_values
from dsa_contracts.dsa.row_formats import index_bf16_format
from dsa_contracts.dsa.states import Bf16Row, Fp8Row656, IndexBf16Row, Packed, Raw, Rotated, TokenSlots
from dsa_cp.layouts import Interleave, VllmReplicated, Zigzag, build_batches
from dsa_cp.stages import write_kv
from tests.support.branded import WIDE, batches, bytes_of, gathered, in_sequence, normal, num_pages, pool_of
from tests.support.messages import contract_and_ran
from tests.support.stage_calls import refusal, refused, valid_args
from tests.support.stage_values import rows_under_scale

ONE = index_bf16_format(1)
"""Rows of two bytes, so that a pool can be written down."""


def tiny(slots: list[int], pages: int, page_size: int, **options: Any) -> tuple[CpBatch[Any], Any]:
    """One rank's batch of one request with these slots, and a pool of 0xee bytes."""
    pool: dict[str, Any] = {"out_cache_loc": torch.tensor(slots), "page_size": page_size}
    (batch,) = build_batches(Zigzag(), 1, [len(slots)], **pool, **options)
    return batch, pool_of(torch.full((pages, page_size, 2), 0xEE, dtype=torch.uint8), IndexBf16Row)


def given_slots(batch: CpBatch[Any]) -> Any:
    return batch.out_cache_loc


def rows_of(values: list[int]) -> Tensor:
    return torch.tensor([[value, value + 100] for value in values], dtype=torch.uint8)


@pytest.mark.parametrize(("pages", "page_size"), [(8, 1), (2, 4), (1, 8)])
def test_each_row_lands_in_its_slot_and_no_other_slot_changes(pages: int, page_size: int) -> None:
    batch, pool = tiny([6, 0, 3], pages, page_size)
    kv = in_sequence(rows_of([1, 2, 3]), Packed[IndexBf16Row, Rotated], batch)
    with checking_values():
        write_kv(pool, kv, given_slots(batch), ONE, batch)
    by_slot = pool.view(-1, 2).tolist()
    empty = [0xEE, 0xEE]
    assert by_slot == [[2, 102], empty, empty, [3, 103], empty, empty, [1, 101], empty]


def test_a_negative_slot_is_not_an_index() -> None:
    batch, pool = tiny([2, 3], 8, 1, padded_lens=[4])
    kv = gathered(rows_of([1, 2, 8, 9]), Packed[IndexBf16Row, Rotated], batch)
    assert batch.rank_major_loc is not None
    assert batch.rank_major_loc.tolist() == [2, 3, -1, -1]
    with checking_values():
        write_kv(pool, kv, batch.rank_major_loc, ONE, batch)
    assert pool.view(-1, 2)[:, 0].tolist() == [0xEE, 0xEE, 1, 2, 0xEE, 0xEE, 0xEE, 0xEE]


def test_pages_of_64_slots() -> None:
    (batch,) = batches(Zigzag(), 1, [70, 3], [60, 0], page_size=64)
    args = valid_args("write_kv", batch)
    before = args["pool"].clone()
    with checking_values():
        write_kv(**args)
    slots, loc = args["pool"].view(-1, 24), batch.rank_major_loc
    assert torch.equal(slots[loc], args["kv"])
    others = torch.ones(slots.shape[0], dtype=torch.bool)
    others[loc] = False
    assert int(others.sum()) == slots.shape[0] - 73
    assert torch.equal(slots[others], before.view(-1, 24)[others])


def test_rank_major_and_sequence_order_leave_the_same_pool() -> None:
    batch = batches(Interleave(), 3, [7, 4], [2, 0])[1]
    args = valid_args("write_kv", batch)
    other = pool_of(args["pool"].clone(), Bf16Row)
    kv = in_sequence(args["kv"][batch.restore_index], Packed[Bf16Row, Rotated], batch)
    write_kv(**args)
    write_kv(**{**args, "pool": other, "kv": kv, "loc": batch.out_cache_loc})
    assert torch.equal(args["pool"], other)


def test_of_replicated_rows_one_copy_is_written() -> None:
    batch = batches(VllmReplicated(), 2, [3], [0])[1]
    args = valid_args("write_kv", batch)
    assert batch.rank_major_loc is not None
    assert batch.rank_major_loc[3:].tolist() == [-1, -1, -1]
    with checking_values():
        write_kv(**args)
    assert torch.equal(args["pool"].view(-1, 24)[batch.out_cache_loc], args["kv"][:3])


def test_rows_may_be_columns_of_wider_rows() -> None:
    batch = batches()[0]
    args = valid_args("write_kv", batch)
    wide = bytes_of(normal(12, 20))
    columns, other = gathered(wide[:, 8:32], Packed[Bf16Row, Rotated], batch), pool_of(args["pool"].clone(), Bf16Row)
    write_kv(**{**args, "kv": columns})
    write_kv(**{**args, "pool": other, "kv": gathered(columns.contiguous(), Packed[Bf16Row, Rotated], batch)})
    assert torch.equal(args["pool"], other)


@pytest.mark.parametrize(
    ("slots", "text"),
    [
        ([6, 0, 8], "loc[2] is 8, the pool has 8 slots"),
        ([6, 0, 6], "slot 6 is written more than once"),
        ([6, -1, 3], "2 slots are written, the batch has 3 new tokens"),
    ],
)
def test_slots_that_are_not_legal_are_refused_where_their_values_are_read(slots: list[int], text: str) -> None:
    batch, pool = tiny(slots, 2, 4)
    kv = in_sequence(rows_of([1, 2, 3]), Packed[IndexBf16Row, Rotated], batch)
    with checking_values():
        error = refused("write_kv", {"pool": pool, "kv": kv, "loc": batch.out_cache_loc, "row_format": ONE, "batch": batch})
    assert str(error) == "\n".join(
        [
            f"StageInputError DSA116: write_kv: {text}",
            "  expected  slots_are_legal: each new token that the pool holds has one slot of it, unique; padding has none",
            "  where     cp_rank=0 of 1, zigzag",
            contract_and_ran(write_kv),
            "  try       take slots from the batch; -1 stands for padding and is never an index",
        ]
    )
    assert pool.unique().tolist() == [0xEE]


def test_a_slot_for_a_padding_row_is_refused() -> None:
    batch, pool = tiny([2, 3], 8, 1, padded_lens=[4])
    kv = gathered(rows_of([1, 2, 8, 9]), Packed[IndexBf16Row, Rotated], batch)
    args = {"pool": pool, "kv": kv, "row_format": ONE, "batch": batch}
    with checking_values():
        error = refused("write_kv", {**args, "loc": gathered(torch.tensor([2, -1, 5, -1]), TokenSlots, batch)})
    assert (error.code, error.headline) == ("DSA116", "write_kv: loc[2] is 5, that gathered row is padding")


def test_a_pool_of_another_page_size_is_refused() -> None:
    batch = batches()[0]
    args = valid_args("write_kv", batch)
    error = refused("write_kv", args, pool=pool_of(args["pool"].view(-1, 2, 24), Bf16Row))
    assert (error.code, error.headline) == ("DSA114", "write_kv: pool has pages of 2 slots, the batch has page_size 4")


def test_a_pool_of_another_width_and_rows_of_another_width_are_refused() -> None:
    batch = batches()[0]
    args = valid_args("write_kv", batch)
    error = refused("write_kv", args, kv=gathered(torch.zeros(12, 12).byte(), Packed[Bf16Row, Rotated], batch))
    assert (error.code, error.headline) == ("DSA102", "write_kv: kv has 12 row_bytes, pool has 24")
    narrow = pool_of(args["pool"][..., :12].contiguous(), Bf16Row)
    kv = gathered(args["kv"][:, :12].contiguous(), Packed[Bf16Row, Rotated], batch)
    error = refused("write_kv", args, pool=narrow, kv=kv)
    assert (error.code, error.headline) == ("DSA110", "write_kv: kv is 12 bytes wide, a row of bf16 has 24")


def test_raw_rows_and_slots_in_another_order_are_refused() -> None:
    batch = batches(Zigzag(), 2, [8], [0])[0]
    args = valid_args("write_kv", batch)
    raw = gathered(args["kv"].clone(), Packed[Bf16Row, Raw], batch)
    error = refused("write_kv", args, kv=raw)
    assert (error.code, error.headline) == (
        "DSA107",
        "write_kv: kv is Packed[Bf16Row, Raw], not Packed[Bf16Row, Rotated]",
    )
    error = refused("write_kv", args, loc=batch.out_cache_loc)
    assert (error.code, error.headline) == (
        "DSA106",
        "write_kv: loc holds Global[Sequence] rows, not Global[RankMajor[Zigzag]]",
    )


def test_a_slot_that_the_page_table_does_not_give_the_token_is_refused_by_value() -> None:
    page_table = torch.tensor([[1]], dtype=torch.int32)
    made = {
        slots: build_batches(Zigzag(), 1, [2], out_cache_loc=torch.tensor(slots), page_table=page_table, page_size=4)[0]
        for slots in ((4, 5), (5, 4))
    }
    for slots, batch in made.items():
        pool = pool_of(torch.zeros(2, 4, 2, dtype=torch.uint8), IndexBf16Row)
        kv = in_sequence(rows_of([1, 2]), Packed[IndexBf16Row, Rotated], batch)
        with checking_values():
            if slots == (4, 5):
                write_kv(pool, kv, given_slots(batch), ONE, batch)
                continue
            error = refusal(write_kv, pool, kv, given_slots(batch), ONE, batch)
        assert (error.code, error.headline) == (
            "DSA116",
            "write_kv: loc[0] is 5, the page table gives row 0 slot 4",
        )


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), -1.0, 0.0])
def test_rows_under_a_scale_that_is_none_are_refused_by_value(scale: float) -> None:
    batch = batches(Zigzag(), 2, [8, 8], [0, 0])[0]
    pool = pool_of(torch.zeros(num_pages(batch), batch.page_size, WIDE.row_bytes, dtype=torch.uint8), Fp8Row656)
    args = {**valid_args("write_kv", batch), "row_format": WIDE, "pool": pool}

    def rows(value: float) -> Any:
        return gathered(rows_under_scale(WIDE, batch.nnz_gathered, value), Packed[Fp8Row656, Rotated], batch)

    with checking_values():
        error = refused("write_kv", args, kv=rows(scale))
        assert (error.code, error.headline) == ("DSA112", "write_kv: row 0 of kv has a scale that is not positive")
        write_kv(**{**args, "kv": rows(0.5)})
