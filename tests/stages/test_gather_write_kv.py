"""`gather_write_kv` leaves in every rank's pool what the gather and the write leave, and refuses slots of other rows."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import Comm, CpBatch, Layout, checking_values
from dsa_contracts.dsa.row_formats import RowFormat, fp8_format
from dsa_contracts.dsa.states import Bf16Row, Fp8Row, Fp8Row656, Rotated, TokenSlots
from dsa_cp.comm import SimulatedGroup, run_ranks
from dsa_cp.layouts import Interleave, VllmReplicated, VllmZigzag, Zigzag, build_batches
from dsa_cp.stages import all_gather_kv, gather_write_kv, write_kv
from tests.support.branded import BF16, FP8, WIDE, batches, gathered, num_pages, packed, pool_of
from tests.support.messages import contract_and_ran
from tests.support.stage_calls import refusal
from tests.support.stage_values import packed_rows, rows_under_scale

ONE = fp8_format(1, 1)
"""Rows of two bytes, so that a pool can be written down: the token + 1, and that + 100."""
EMPTY = [0xEE, 0xEE]
LAYOUTS = [Zigzag(), Interleave(), Interleave(block=3), VllmZigzag(), VllmReplicated()]
LENS: dict[str, dict[str, Any]] = {
    "one token": {"extend": [1], "prefix": [0]},
    "behind prefixes": {"extend": [7, 4], "prefix": [2, 9]},
    "engine padding": {"extend": [3, 1], "prefix": [0, 5], "padded_lens": [4, 4], "row_alignment": 5},
    "all of it": {"extend": [13, 1, 6], "prefix": [0, 3, 0], "padded_lens": [16, 4, 8], "row_alignment": 2},
}


def kv_of(batch: CpBatch[Any], row_format: RowFormat[Any, Any, Any], *, padded: bool = False) -> Any:
    """This rank's rows of the batch's; padding rows hold 0x77."""
    rows = batch.padded_rows if padded else batch.local_rows
    kv = packed_rows(row_format, batch.nnz)[rows.clamp(min=0)]
    kv[rows < 0] = 0x77
    return packed(kv, row_format.mark, Rotated, batch)


def old_pool(batch: CpBatch[Any], row_format: RowFormat[Any, Any, Any]) -> Tensor:
    """A pool in which every slot holds a row of its own."""
    slots = num_pages(batch) * batch.page_size
    return packed_rows(row_format, slots, seed=20).view(-1, batch.page_size, row_format.row_bytes)


def new_pool(batch: CpBatch[Any], row_format: RowFormat[Any, Any, Any]) -> Tensor:
    """That pool with the batch's rows in their slots."""
    pool, rows = old_pool(batch, row_format), packed_rows(row_format, batch.nnz)
    for row, slot in enumerate(batch.required("out_cache_loc", "test").tolist()):
        pool[slot // batch.page_size, slot % batch.page_size] = rows[row]
    return pool


def args_of(batch: CpBatch[Any], comm: Comm, row_format: RowFormat[Any, Any, Any] = BF16) -> dict[str, Any]:
    pool = pool_of(old_pool(batch, row_format), row_format.mark)
    sent = {"pool": pool, "kv": kv_of(batch, row_format), "loc": batch.rank_major_loc}
    return {**sent, "row_format": row_format, "batch": batch, "comm": comm}


@pytest.mark.parametrize("padded", [False, True], ids=["real rows", "padded rows"])
@pytest.mark.parametrize("cp_size", [1, 2, 3, 4])
@pytest.mark.parametrize("lens", LENS)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_ranks_pool_is_that_of_the_gather_and_the_write(layout: Layout, lens: str, cp_size: int, padded: bool) -> None:
    made = batches(layout, cp_size, **LENS[lens])

    def body(comm: Comm) -> tuple[Tensor, Tensor]:
        batch = made[comm.rank]
        args = {**args_of(batch, comm), "kv": kv_of(batch, BF16, padded=padded)}
        gather_write_kv(**args)
        apart = pool_of(old_pool(batch, BF16), Bf16Row)
        write_kv(apart, all_gather_kv(args["kv"], BF16, batch, comm), args["loc"], BF16, batch)
        return args["pool"], apart

    want = new_pool(made[0], BF16)
    with checking_values():
        for together, apart in run_ranks(cp_size, body):
            assert torch.equal(together, want)
            assert torch.equal(apart, want)


@pytest.mark.parametrize("row_format", [BF16, FP8, WIDE], ids=lambda row_format: row_format.name)
def test_rows_of_each_format_are_moved_as_bytes_also_as_columns_of_wider_rows(row_format: RowFormat[Any, Any, Any]) -> None:
    made = batches(Zigzag(), 3)

    def body(comm: Comm) -> Tensor:
        args = args_of(made[comm.rank], comm, row_format)
        wide = torch.cat([args["kv"], args["kv"]], dim=1)[:, : row_format.row_bytes]
        assert not wide.is_contiguous()
        gather_write_kv(**{**args, "kv": packed(wide, row_format.mark, Rotated, args["batch"])})
        return args["pool"]  # type: ignore[no-any-return]

    assert all(torch.equal(pool, new_pool(made[0], row_format)) for pool in run_ranks(3, body))


@pytest.mark.parametrize("cp_size", [1, 2, 3, 4])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_each_token_lands_in_its_slot_of_every_pool_and_no_other_slot_changes(layout: Layout, cp_size: int) -> None:
    made = build_batches(layout, cp_size, [3], out_cache_loc=torch.tensor([6, 0, 3]), page_size=4)

    def body(comm: Comm) -> list[list[int]]:
        batch = made[comm.rank]
        tokens = batch.local_rows + 1
        kv = packed(torch.stack([tokens, tokens + 100], dim=1).byte(), Fp8Row, Rotated, batch)
        pool = pool_of(torch.full((2, 4, 2), 0xEE, dtype=torch.uint8), Fp8Row)
        gather_write_kv(pool, kv, batch.required("rank_major_loc", "test"), ONE, batch, comm)  # type: ignore[arg-type]
        return pool.view(-1, 2).tolist()  # type: ignore[no-any-return]

    with checking_values():
        found = run_ranks(cp_size, body)
    assert found == [[[2, 102], EMPTY, EMPTY, [3, 103], EMPTY, EMPTY, [1, 101], EMPTY]] * cp_size


def test_a_pool_may_have_more_pages_than_the_batch_and_other_ranks_use() -> None:
    made = batches()

    def body(comm: Comm) -> Tensor:
        args = args_of(made[comm.rank], comm)
        more = torch.cat([args["pool"], args["pool"][: comm.rank]])
        gather_write_kv(**{**args, "pool": pool_of(more, Bf16Row)})
        return more[: num_pages(made[0])]

    assert all(torch.equal(pool, new_pool(made[0], BF16)) for pool in run_ranks(2, body))


def seven() -> tuple[CpBatch[Any], ...]:
    """Rows 0 1 6 _ and 2 3 4 5 behind a prefix of one, on pages 2 and 0: slots 9 10 11 0 1 2 3."""
    pages, slots = torch.tensor([[2, 0]], dtype=torch.int32), torch.tensor([9, 10, 11, 0, 1, 2, 3])
    return build_batches(Zigzag(), 2, [7], [1], out_cache_loc=slots, page_table=pages, page_size=4)


def three() -> tuple[CpBatch[Any], ...]:
    """Rows 0 1 2 on rank 0, and once more on rank 1, on page 1: slots 4 5 6."""
    pages, slots = torch.tensor([[1]], dtype=torch.int32), torch.tensor([4, 5, 6])
    return build_batches(VllmReplicated(), 2, [3], out_cache_loc=slots, page_table=pages, page_size=4)


def write(made: tuple[CpBatch[Any], ...], loc: list[int], *, is_branded: bool) -> list[Tensor]:
    """Every rank's pool after the call with these slots, in values mode."""

    def body(comm: Comm) -> Tensor:
        batch, pool = made[comm.rank], pool_of(old_pool(made[0], BF16), Bf16Row)
        slots: Any = torch.tensor(loc)
        slots = gathered(slots, TokenSlots, batch) if is_branded else slots
        gather_write_kv(pool, kv_of(batch, BF16), slots, BF16, batch, comm)
        return pool  # type: ignore[no-any-return]

    with checking_values():
        return run_ranks(2, body)


is_branded = pytest.mark.parametrize("is_branded", [True, False], ids=["branded", "unbranded"])
"""Slots without a brand are legal: their values are read."""


@is_branded
@pytest.mark.parametrize(
    ("made", "loc", "text"),
    [
        (seven, [9, 10, 20, -1, 11, 0, 1, 2], "loc[2] is 20, the pool has 20 slots"),
        (seven, [9, 10, 3, -1, 11, 0, 1, 1], "slot 1 is written more than once"),
        (seven, [9, 10, 3, -1, 11, 0, 1, -1], "6 slots are written, the batch has 7 new tokens"),
        (seven, [9, 10, -1, 3, 11, 0, 1, 2], "loc[3] is 3, that gathered row is padding"),
        (seven, [9, 10, 19, -1, 11, 0, 1, 2], "loc[2] is 19, the page table gives row 6 slot 3"),
        (seven, [10, 9, 3, -1, 11, 0, 1, 2], "loc[0] is 10, the page table gives row 0 slot 9"),
        (seven, [9, 10, 3, -1, 0, 11, 1, 2], "loc[4] is 0, the page table gives row 2 slot 11"),
        (seven, [9, 10, 11, -1, 0, 1, 2, 3], "loc[2] is 11, the page table gives row 6 slot 3"),
        (three, [4, 5, 6, 4, -1, -1], "slot 4 is written more than once"),
        (three, [-1, 5, 6, -1, 4, -1], "row 0 of the batch has no slot"),
        (three, [-1, -1, -1, 6, 5, 4], "loc[3] is 6, the page table gives row 0 slot 4"),
    ],
)
def test_rank_major_slots_that_are_not_the_rows_own_are_refused_by_value(
    made: Callable[[], tuple[CpBatch[Any], ...]], loc: list[int], text: str, is_branded: bool
) -> None:
    error = refusal(write, made(), loc, is_branded=is_branded)
    assert (error.code, error.headline) == ("DSA116", f"gather_write_kv: {text}")


@is_branded
@pytest.mark.parametrize(
    ("made", "loc"),
    [
        (seven, [9, 10, 3, -1, 11, 0, 1, 2]),
        (seven, [9, 10, 3, -9, 11, 0, 1, 2]),
        (three, [4, 5, 6, -1, -1, -1]),
        (three, [-1, -1, -1, 4, 5, 6]),
        (three, [-1, 5, -2, 4, -3, 6]),
    ],
)
def test_padding_has_any_negative_slot_and_of_replicated_rows_any_copy_is_the_written_one(
    made: Callable[[], tuple[CpBatch[Any], ...]], loc: list[int], is_branded: bool
) -> None:
    want = new_pool(made()[0], BF16)
    assert all(torch.equal(pool, want) for pool in write(made(), loc, is_branded=is_branded))


def test_a_refused_slot_is_told_with_the_fact_and_what_to_do() -> None:
    error = refusal(write, seven(), [10, 9, 3, -1, 11, 0, 1, 2], is_branded=True)
    fact = "out_cache_loc[row] = page_table[request][position // page_size] * page_size + position % page_size"
    assert str(error) == "\n".join(
        [
            "StageInputError DSA116: gather_write_kv: loc[0] is 10, the page table gives row 0 slot 9",
            f"  expected  slots_are_on_their_pages: loc[i] = {fact}",
            "  where     cp_rank=0 of 2, zigzag",
            contract_and_ran(gather_write_kv),
            "  try       take slots from the batch; -1 stands for padding and is never an index",
        ]
    )


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), -1.0, 0.0])
def test_rows_under_a_scale_that_is_none_are_refused_by_value(scale: float) -> None:
    batch = batches(Zigzag(), 1, [5], [0])[0]
    args = args_of(batch, SimulatedGroup(1).comm(0), WIDE)

    def rows(value: float) -> Any:
        return packed(rows_under_scale(WIDE, batch.nnz_local, value), Fp8Row656, Rotated, batch)

    with checking_values():
        error = refusal(gather_write_kv, **{**args, "kv": rows(scale)})
        assert "DSA112: gather_write_kv: row 0 of kv has a scale that is not positive" in str(error)
        gather_write_kv(**{**args_of(batch, SimulatedGroup(1).comm(0), WIDE), "kv": rows(0.5)})
