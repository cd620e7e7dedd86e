"""What `gather_write_kv_and_index` refuses of rows, pools, formats and slots, each beside a near miss."""

from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import Comm, CpBatch, checking_values
from dsa_contracts.dsa.row_formats import fp8_format, index_bf16_format, index_fp8_format
from dsa_contracts.dsa.states import Fp8Row, IndexBf16Row, IndexFp8Row, Packed, Raw, Rotated, TokenSlots
from dsa_cp.comm import run_ranks
from dsa_cp.layouts import Zigzag, build_batches
from dsa_cp.stages import gather_write_kv_and_index
from tests.support.branded import batches, comm_of, gathered, num_pages, packed, pool_of
from tests.support.stage_calls import refusal, refused
from tests.support.stage_values import packed_rows

NAME = "gather_write_kv_and_index"
KV, KEY = fp8_format(8, 4), index_fp8_format(8)
"""Both of 12 bytes: only their brands tell their rows apart."""
Args = dict[str, Any]


def args_of(batch: CpBatch[Any], comm: Comm) -> Args:
    shape = num_pages(batch), batch.page_size, 12
    found: Args = {"loc": batch.rank_major_loc, "row_format": KV, "index_format": KEY, "batch": batch, "comm": comm}
    for prefix, row_format in (("", KV), ("index_", KEY)):
        found[f"{prefix}pool"] = pool_of(torch.full(shape, 0xEE, dtype=torch.uint8), row_format.mark)
        rows = packed_rows(row_format, batch.nnz)[batch.local_rows]
        found[f"{prefix}kv"] = packed(rows, row_format.mark, Rotated, batch)
    return found


def run(made: tuple[CpBatch[Any], ...], changes: Any = None) -> list[tuple[Tensor, Tensor]]:
    """Both pools of every rank after a call; `changes(args)` replaces some of a rank's arguments."""

    def body(comm: Comm) -> tuple[Tensor, Tensor]:
        args = args_of(made[comm.rank], comm)
        args |= changes(args) if changes else {}
        gather_write_kv_and_index(**args)
        return args["pool"], args["index_pool"]

    return run_ranks(len(made), body)


def both(change: Any, args: Args, *names: str) -> Args:
    """Each of these arguments changed, under the brand of its format."""
    found: Args = {}
    for name in names:
        mark = (KEY if name.startswith("index_") else KV).mark
        changed = change(args[name])
        found[name] = pool_of(changed, mark) if "pool" in name else packed(changed, mark, Rotated, args["batch"])
    return found


def narrow(tensor: Tensor) -> Tensor:
    return tensor[..., :8].contiguous()


FAULTS: dict[str, tuple[Any, str, str]] = {
    "raw keys": (
        lambda args: {"kv": packed(args["kv"].clone(), Fp8Row, Raw, args["batch"])},
        "DSA107",
        "kv is Packed[Fp8Row, Raw], not Packed[Fp8Row, Rotated]",
    ),
    "raw indexer keys": (
        lambda args: {"index_kv": packed(args["index_kv"].clone(), IndexFp8Row, Raw, args["batch"])},
        "DSA107",
        "index_kv is Packed[IndexFp8Row, Raw], not Packed[IndexFp8Row, Rotated]",
    ),
    "gathered indexer keys": (
        lambda args: {"index_kv": gathered(args["index_kv"].clone(), Packed[IndexFp8Row, Rotated], args["batch"])},
        "DSA106",
        "index_kv holds Global[RankMajor[Zigzag]] rows, not Local[Zigzag]",
    ),
    "slots in sequence order": (
        lambda args: {"loc": args["batch"].out_cache_loc},
        "DSA106",
        "loc holds Global[Sequence] rows, not Global[RankMajor[Zigzag]]",
    ),
    "swapped pools": (
        lambda args: {"pool": args["index_pool"], "index_pool": args["pool"]},
        "DSA107",
        "pool is Packed[IndexFp8Row, Rotated], not Packed[Fp8Row, Rotated]",
    ),
    "swapped rows": (
        lambda args: {"kv": args["index_kv"], "index_kv": args["kv"]},
        "DSA107",
        "kv is Packed[IndexFp8Row, Rotated], not Packed[Fp8Row, Rotated]",
    ),
    "swapped formats": (
        lambda args: {"row_format": KEY, "index_format": KV},
        "DSA107",
        "pool is Packed[Fp8Row, Rotated], not Packed[IndexFp8Row, Rotated]",
    ),
    "a format of the same width": (
        lambda args: {"index_format": index_bf16_format(6)},
        "DSA107",
        "index_pool is Packed[IndexFp8Row, Rotated], not Packed[IndexBf16Row, Rotated]",
    ),
    "no format": (lambda args: {"index_format": None}, "DSA101", "index_format is None"),
    "narrow rows": (lambda args: both(narrow, args, "kv"), "DSA102", "kv has 8 row_bytes, pool has 12"),
    "narrow indexer rows": (
        lambda args: both(narrow, args, "index_kv"),
        "DSA102",
        "index_kv has 8 index_row_bytes, index_pool has 12",
    ),
    "narrow rows and pool": (
        lambda args: both(narrow, args, "kv", "pool"),
        "DSA110",
        "kv is 8 bytes wide, a row of fp8 has 12",
    ),
    "narrow indexer rows and pool": (
        lambda args: both(narrow, args, "index_kv", "index_pool"),
        "DSA110",
        "index_kv is 8 bytes wide, a row of index_fp8 has 12",
    ),
    "half pages of one": (
        lambda args: both(lambda pool: pool[:, :2].contiguous(), args, "index_pool"),
        "DSA102",
        "index_pool has 2 page_size, pool has 4",
    ),
    "half pages of both": (
        lambda args: both(lambda pool: pool.view(-1, 2, 12), args, "pool", "index_pool"),
        "DSA114",
        "pool has pages of 2 slots, the batch has page_size 4",
    ),
    "a page less in one": (
        lambda args: both(lambda pool: pool[1:], args, "index_pool"),
        "DSA102",
        "index_pool has 4 rows, pool has 5",
    ),
}


def refusal_of(fault: str) -> tuple[str, str]:
    """Code and headline of the refusal; both pools are as they were."""
    (batch,) = batches(Zigzag(), 1, [8], [0])
    args = args_of(batch, comm_of(batch))
    error = refused(NAME, args, **FAULTS[fault][0](args))
    assert [args[name].unique().tolist() for name in ("pool", "index_pool")] == [[0xEE], [0xEE]]
    return error.code, error.headline


@pytest.mark.parametrize("fault", FAULTS)
def test_rows_pools_and_formats_that_do_not_fit_are_refused_and_both_pools_are_as_they_were(fault: str) -> None:
    assert refusal_of(fault)[0] == FAULTS[fault][1]


@pytest.mark.parametrize("fault", FAULTS)
def test_the_headline_names_the_argument_that_does_not_fit_and_what_it_should_be(fault: str) -> None:
    assert refusal_of(fault)[1] == f"{NAME}: {FAULTS[fault][2]}"


def test_more_pages_of_that_size_and_another_pair_of_formats_of_that_width_are_taken() -> None:
    made = batches()

    def more(args: Args) -> Args:
        return both(lambda pool: torch.cat([pool, pool[: args["comm"].rank]]), args, "pool", "index_pool")

    def bf16_keys(args: Args) -> Args:
        pool, rows = args["index_pool"].clone(), args["index_kv"].clone()
        branded = {"index_pool": pool_of(pool, IndexBf16Row), "index_kv": packed(rows, IndexBf16Row, Rotated, args["batch"])}
        return {**branded, "index_format": index_bf16_format(6)}

    pages, want = num_pages(made[0]), torch.stack(run(made)[0])
    for rank, pools in enumerate(run(made, more)):
        assert [pool.shape[0] for pool in pools] == [pages + rank] * 2
        assert torch.equal(torch.stack([pool[:pages] for pool in pools]), want)
    assert all(torch.equal(torch.stack(pools), want) for pools in run(made, bf16_keys))


def test_rows_that_do_not_say_whose_they_are_are_refused_where_values_are_read_and_slots_are_not() -> None:
    (batch,) = batches(Zigzag(), 1, [8], [0])
    args = args_of(batch, comm_of(batch))
    plain = {name: args[name].detach().clone() for name in ("kv", "index_kv", "loc")}
    gather_write_kv_and_index(**{**args, **plain})
    with checking_values():
        for name in ("kv", "index_kv"):
            error = refused(NAME, args, comm=comm_of(batch), **{name: plain[name]})
            text = f"{NAME}: nothing states which rows {name} holds"
            assert (error.code, error.headline) == ("DSA125", text)
        gather_write_kv_and_index(**{**args, "loc": plain["loc"], "comm": comm_of(batch)})


@pytest.mark.parametrize(
    ("loc", "text"),
    [
        ([9, 10, 20, -1, 11, 0, 1, 2], "loc[2] is 20, the pool has 20 slots"),
        ([9, 10, 3, -1, 11, 0, 1, 1], "slot 1 is written more than once"),
        ([9, 10, -1, 3, 11, 0, 1, 2], "loc[3] is 3, that gathered row is padding"),
        ([9, 10, 3, -1, 0, 11, 1, 2], "loc[4] is 0, the page table gives row 2 slot 11"),
        ([9, 10, 3, -1, 11, 0, 1, 2], ""),
        ([9, 10, 3, -7, 11, 0, 1, 2], ""),
    ],
)
def test_rank_major_slots_that_are_not_the_rows_own_are_refused_by_value(loc: list[int], text: str) -> None:
    pages, slots = torch.tensor([[2, 0]], dtype=torch.int32), torch.tensor([9, 10, 11, 0, 1, 2, 3])
    made = build_batches(Zigzag(), 2, [7], [1], out_cache_loc=slots, page_table=pages, page_size=4)

    def given(args: Args) -> Args:
        return {"loc": gathered(torch.tensor(loc), TokenSlots, args["batch"])}

    with checking_values():
        if not text:
            assert all(torch.equal(*pair) for pair in zip(run(made, given)[1], run(made)[1], strict=True))
            return
        error = refusal(run, made, given)
    assert (error.code, error.headline) == ("DSA116", f"{NAME}: {text}")
