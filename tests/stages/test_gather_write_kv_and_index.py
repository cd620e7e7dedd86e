"""`gather_write_kv_and_index` leaves in both pools what two gathers and two writes leave, after one collective."""

from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import Comm, CpBatch, Layout, checking_values, unchecked_function
from dsa_contracts.dsa.row_formats import RowFormat, fp8_format, index_fp8_format
from dsa_contracts.dsa.states import Rotated
from dsa_cp.comm import run_ranks
from dsa_cp.layouts import Interleave, VllmZigzag, Zigzag, build_batches
from dsa_cp.stages import all_gather_kv, gather_write_kv_and_index, write_kv
from tests.support.branded import BF16, FP8, INDEX, WIDE, batches, num_pages, packed, pool_of
from tests.support.stage_values import packed_rows

Format = RowFormat[Any, Any, Any]
KV, KEY = fp8_format(8, 4), index_fp8_format(8)
"""Both of 12 bytes: only their brands tell their rows apart."""
LENS: dict[str, dict[str, Any]] = {
    "one token": {"extend": [1], "prefix": [0]},
    "all of it": {"extend": [13, 1, 6], "prefix": [0, 3, 0], "padded_lens": [16, 4, 8], "row_alignment": 2},
}


def rows_at(batch: CpBatch[Any], row_format: Format, *, padded: bool = False) -> Tensor:
    """This rank's rows of the batch's; padding rows hold 0x77."""
    rows = batch.padded_rows if padded else batch.local_rows
    found = packed_rows(row_format, batch.nnz)[rows.clamp(min=0)]
    found[rows < 0] = 0x77
    return found


def old_pool(batch: CpBatch[Any], row_format: Format) -> Tensor:
    """A pool in which every slot holds a row of its own."""
    slots = num_pages(batch) * batch.page_size
    return packed_rows(row_format, slots, seed=20).view(-1, batch.page_size, row_format.row_bytes)


def new_pool(batch: CpBatch[Any], row_format: Format) -> Tensor:
    """That pool with the batch's rows in their slots."""
    pool, rows = old_pool(batch, row_format), packed_rows(row_format, batch.nnz)
    for row, slot in enumerate(batch.required("out_cache_loc", "test").tolist()):
        pool[slot // batch.page_size, slot % batch.page_size] = rows[row]
    return pool


def args_of(batch: CpBatch[Any], comm: Comm, kv: Format = KV, index: Format = KEY, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"loc": batch.rank_major_loc, "batch": batch, "comm": comm}
    for prefix, row_format in (("", kv), ("index_", index)):
        found[f"{prefix}pool"] = pool_of(old_pool(batch, row_format), row_format.mark)
        found[f"{prefix}kv"] = packed(rows_at(batch, row_format, **options), row_format.mark, Rotated, batch)
    return {**found, "row_format": kv, "index_format": index}


def run(made: tuple[CpBatch[Any], ...], changes: Any = None, **options: Any) -> list[tuple[Tensor, Tensor]]:
    """Both pools of every rank after a call; `changes(args)` replaces some of a rank's arguments."""

    def body(comm: Comm) -> tuple[Tensor, Tensor]:
        args = args_of(made[comm.rank], comm, **options)
        args |= changes(args) if changes else {}
        gather_write_kv_and_index(**args)
        return args["pool"], args["index_pool"]

    return run_ranks(len(made), body)


def are_new(pools: list[tuple[Tensor, Tensor]], batch: CpBatch[Any], kv: Format = KV, index: Format = KEY) -> bool:
    want = new_pool(batch, kv), new_pool(batch, index)
    return all(torch.equal(*pair) for both in pools for pair in zip(both, want, strict=True))


@pytest.mark.parametrize("padded", [False, True], ids=["real rows", "padded rows"])
@pytest.mark.parametrize("cp_size", [1, 2, 3, 4])
@pytest.mark.parametrize("lens", LENS)
@pytest.mark.parametrize("layout", [Zigzag(), Interleave(), VllmZigzag()], ids=lambda layout: layout.name)
def test_both_pools_of_every_rank_are_those_of_two_gathers_and_two_writes(
    layout: Layout, lens: str, cp_size: int, padded: bool
) -> None:
    made = batches(layout, cp_size, **LENS[lens])

    def apart(comm: Comm) -> tuple[Tensor, Tensor]:
        args = args_of(made[comm.rank], comm, padded=padded)
        for prefix, row_format in (("", KV), ("index_", KEY)):
            rows = all_gather_kv(args[f"{prefix}kv"], row_format, args["batch"], comm)
            write_kv(args[f"{prefix}pool"], rows, args["loc"], row_format, args["batch"])
        return args["pool"], args["index_pool"]

    with checking_values():
        assert are_new(run(made, padded=padded), made[0])
        assert are_new(run_ranks(cp_size, apart), made[0])


@pytest.mark.parametrize("index", [INDEX, KEY], ids=lambda row_format: row_format.name)
@pytest.mark.parametrize("kv", [BF16, FP8, WIDE], ids=lambda row_format: row_format.name)
def test_rows_of_each_pair_of_formats_are_moved_as_bytes(kv: Format, index: Format) -> None:
    made = batches(Zigzag(), 3)
    assert are_new(run(made, kv=kv, index=index), made[0], kv, index)


def test_both_rows_of_a_token_land_in_its_slot_and_no_other_slot_changes() -> None:
    made = build_batches(Interleave(), 2, [3], out_cache_loc=torch.tensor([6, 0, 3]), page_size=4)
    latent, key = fp8_format(1, 1), index_fp8_format(1)

    def body(comm: Comm) -> list[list[int]]:
        batch = made[comm.rank]
        pools: list[Any] = [pool_of(torch.full((2, 4, each.row_bytes), 0xEE).byte(), each.mark) for each in (latent, key)]
        tokens = batch.local_rows.byte()[:, None]
        kv = packed((tokens + 1).repeat(1, 2), latent.mark, Rotated, batch)
        index_kv = packed((tokens + 101).repeat(1, 5), key.mark, Rotated, batch)
        loc: Any = batch.rank_major_loc
        gather_write_kv_and_index(pools[0], pools[1], kv, index_kv, loc, latent, key, batch, comm)
        return [pool.view(8, -1).unique(dim=1).flatten().tolist() for pool in pools]

    with checking_values():
        found = run_ranks(2, body)
    empty = 0xEE
    assert found == [[[2, empty, empty, 3, empty, empty, 1, empty], [102, empty, empty, 103, empty, empty, 101, empty]]] * 2


def test_both_rows_may_be_columns_of_one_packed_row() -> None:
    made = batches()

    def columns(args: dict[str, Any]) -> dict[str, Any]:
        fused = torch.cat([args["kv"], args["index_kv"]], dim=1)
        parts = {"kv": (fused[:, :12], KV), "index_kv": (fused[:, 12:], KEY)}
        return {name: packed(part, each.mark, Rotated, args["batch"]) for name, (part, each) in parts.items()}

    with checking_values():
        assert are_new(run(made, columns), made[0])


class Counted:
    """A group that notes the width of each gather."""

    def __init__(self, comm: Comm) -> None:
        self.comm, self.size, self.rank, self.widths = comm, comm.size, comm.rank, list[int]()
        self.agree, self.fail, self.done = comm.agree, comm.fail, comm.done

    def all_gather(self, rows: Tensor) -> Tensor:
        self.widths.append(rows.shape[1])
        return self.comm.all_gather(rows)


def test_one_collective_moves_both_rows() -> None:
    made = batches()

    def body(comm: Comm) -> list[int]:
        counted = Counted(comm)
        unchecked_function(gather_write_kv_and_index)(**args_of(made[comm.rank], counted))
        return counted.widths

    assert run_ranks(2, body) == [[24], [24]]
