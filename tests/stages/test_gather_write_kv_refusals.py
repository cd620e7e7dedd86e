"""What `gather_write_kv` refuses of rows, pools and groups, each beside a near miss; slots are in `test_gather_write_kv`."""

import time
from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import Comm, CpBatch, checking_values
from dsa_contracts.core.errors import RankError
from dsa_contracts.dsa.states import Bf16Row, Fp8Row, Packed, Raw, Rotated
from dsa_cp.comm import SimulatedGroup, run_ranks
from dsa_cp.layouts import VllmReplicated, Zigzag
from dsa_cp.stages import gather_write_kv
from tests.support.branded import BF16, FP8, batches, comm_of, gathered, num_pages, packed, pool_of
from tests.support.stage_calls import refusal, refused, valid_args

NAME = "gather_write_kv"


def run(made: tuple[CpBatch[Any], ...], changes: Any = None, **options: Any) -> list[Tensor]:
    """Every rank's pool after a call; `changes(args)` replaces some of a rank's arguments."""

    def body(comm: Comm) -> Tensor:
        args = {**valid_args(NAME, made[comm.rank]), "comm": comm}
        args |= changes(args) if changes else {}
        gather_write_kv(**args)
        return args["pool"]  # type: ignore[no-any-return]

    return run_ranks(len(made), body, **options)


@pytest.mark.parametrize(
    ("fault", "code", "text"),
    [
        ("raw", "DSA107", "kv is Packed[Bf16Row, Raw], not Packed[Bf16Row, Rotated]"),
        ("another format's pool", "DSA107", "pool is Packed[Fp8Row, Rotated], not Packed[Bf16Row, Rotated]"),
        ("gathered", "DSA106", "kv holds Global[RankMajor[Zigzag]] rows, not Local[Zigzag]"),
        ("slots in sequence order", "DSA106", "loc holds Global[Sequence] rows, not Global[RankMajor[Zigzag]]"),
        ("narrow rows", "DSA102", "kv has 12 row_bytes, pool has 24"),
        ("narrow rows and pool", "DSA110", "kv is 12 bytes wide, a row of bf16 has 24"),
        ("half pages", "DSA114", "pool has pages of 2 slots, the batch has page_size 4"),
    ],
)
def test_rows_and_pools_that_do_not_fit_are_refused_and_the_pool_is_as_it_was(fault: str, code: str, text: str) -> None:
    (batch,) = batches(Zigzag(), 1, [8], [0])
    args = valid_args(NAME, batch)
    pool, kv, before = args["pool"], args["kv"], args["pool"].clone()
    narrow = {"kv": packed(kv[:, :12].contiguous(), Bf16Row, Rotated, batch)}
    changes: dict[str, dict[str, Any]] = {
        "raw": {"kv": packed(kv.clone(), Bf16Row, Raw, batch)},
        "another format's pool": {"pool": pool_of(pool.view_as(pool), Fp8Row)},
        "gathered": {"kv": gathered(kv.clone(), Packed[Bf16Row, Rotated], batch)},
        "slots in sequence order": {"loc": batch.out_cache_loc},
        "narrow rows": narrow,
        "narrow rows and pool": {**narrow, "pool": pool_of(pool[..., :12].contiguous(), Bf16Row)},
        "half pages": {"pool": pool_of(pool.view(-1, 2, 24), Bf16Row)},
    }
    error = refused(NAME, args, **changes[fault])
    assert (error.code, error.headline) == (code, f"{NAME}: {text}")
    assert torch.equal(pool, before)


def test_a_pool_may_have_more_pages_of_that_size_than_another_ranks_and_rows_of_that_width_may_be_fp8() -> None:
    made = batches()

    def more(args: dict[str, Any]) -> dict[str, Any]:
        rank = args["comm"].rank
        return {"pool": pool_of(torch.cat([args["pool"], args["pool"][:rank]]), Bf16Row)}

    def fp8(args: dict[str, Any]) -> dict[str, Any]:
        kv = packed(args["kv"][:, :12].contiguous(), Fp8Row, Rotated, args["batch"])
        return {"pool": pool_of(args["pool"][..., :12].contiguous(), Fp8Row), "kv": kv, "row_format": FP8}

    pages, want = num_pages(made[0]), run(made)[0]
    assert [pool.shape[0] - pages for pool in run(made, more)] == [0, 1]
    assert all(torch.equal(pool[:pages], want) for pool in run(made, more))
    assert all(torch.equal(pool, want[..., :12]) for pool in run(made, fp8))


def test_rows_that_do_not_say_whose_they_are_are_refused_where_values_are_read_and_slots_are_not() -> None:
    (batch,) = batches(Zigzag(), 1, [8], [0])
    args = valid_args(NAME, batch)
    plain = {name: args[name].detach().clone() for name in ("kv", "loc")}
    gather_write_kv(**{**args, "kv": plain["kv"]})
    with checking_values():
        error = refused(NAME, args, kv=plain["kv"], comm=comm_of(batch))
        assert (error.code, error.headline) == ("DSA125", f"{NAME}: nothing states which rows kv holds")
        gather_write_kv(**{**args, "loc": plain["loc"], "comm": comm_of(batch)})


def test_a_group_that_is_not_the_batchs_is_refused_and_its_own_is_not() -> None:
    made = batches()
    args = valid_args(NAME, made[0])
    error = refused(NAME, args, comm=SimulatedGroup(2).comm(1))
    assert (error.code, error.headline) == ("DSA113", f"{NAME}: comm is rank 1 of 2, the batch was cut for rank 0 of 2")
    assert error.facts[-1] == ("try", "take cp_size and cp_rank from the CP group once, and carry them")
    assert refused(NAME, args, comm=SimulatedGroup(3).comm(0)).code == "DSA113"
    assert len(run(made)) == 2


class Reversed:
    """A group whose collective gives the last rank's rows first."""

    def __init__(self, comm: Comm) -> None:
        self.comm, self.size, self.rank = comm, comm.size, comm.rank
        self.agree, self.fail, self.done = comm.agree, comm.fail, comm.done

    def all_gather(self, rows: Tensor) -> Tensor:
        return torch.cat(self.comm.all_gather(rows).chunk(self.size)[::-1])


def backwards(args: dict[str, Any]) -> dict[str, Any]:
    return {"comm": Reversed(args["comm"])}


def test_a_group_in_another_order_is_refused_where_values_are_read() -> None:
    made = batches(Zigzag(), 2, [8], [0])
    with checking_values():
        error = refusal(run, made, backwards)
    text = f"{NAME}: gathered row 0 is row 2 of the batch, in rank order it is 0"
    assert (error.code, error.headline) == ("DSA122", text)


def test_the_order_of_a_group_is_not_looked_at_without_values_and_not_seen_in_rows_that_every_rank_has() -> None:
    assert len(run(batches(Zigzag(), 2, [8], [0]), backwards)) == 2
    replicated = batches(VllmReplicated(), 2, [3], [0])
    with checking_values():
        assert torch.equal(*run(replicated, backwards))


def came_with(number: int, *facts: str) -> str:
    """The text in which every rank of two reads what both came with."""
    lines = [f"  rank {rank}    {text}" for rank, text in enumerate(facts)]
    return "\n".join([f"ranks 0, 1 of 2 came to collective {number} with different facts", *lines])


def test_ranks_with_different_batches_are_told_so_before_rows_move() -> None:
    short, long = batches(Zigzag(), 2, [8], [0]), batches(Zigzag(), 2, [9], [0])
    shared = f"{NAME} layer=None u8[rows, 4, 24] u8[rows, 24] i64[rows] bf16 zigzag cp_size=2"
    assert str(refusal(run, (short[0], long[1]))) == "RankError DSA501: " + came_with(
        1,
        f"{shared} nnz_padded=4 extend=[8] prefix=[0] plan=-",
        f"{shared} nnz_padded=5 extend=[9] prefix=[0] plan=-",
    )


def test_ranks_at_different_layers_and_with_pools_of_different_formats_are_told_so() -> None:
    first, second = batches(Zigzag(), 2, [8], [0])
    batch = "zigzag cp_size=2 nnz_padded=4 extend=[8] prefix=[0] plan=-"
    assert str(refusal(run, (first.at_layer(3), second.at_layer(4)))) == "RankError DSA501: " + came_with(
        1, *(f"{NAME} layer={layer} u8[rows, 4, 24] u8[rows, 24] i64[rows] bf16 {batch}" for layer in (3, 4))
    )

    def fp8_on_rank_1(args: dict[str, Any]) -> dict[str, Any]:
        if args["comm"].rank == 0:
            return {"row_format": BF16}
        kv = packed(args["kv"][:, :12].contiguous(), Fp8Row, Rotated, args["batch"])
        return {"pool": pool_of(args["pool"][..., :12].contiguous(), Fp8Row), "kv": kv, "row_format": FP8}

    assert str(refusal(run, (first, second), fp8_on_rank_1)) == "RankError DSA501: " + came_with(
        1,
        *(
            f"{NAME} layer=None u8[rows, 4, {width}] u8[rows, {width}] i64[rows] {row_format} {batch}"
            for width, row_format in ((24, "bf16"), (12, "fp8"))
        ),
    )


def test_ranks_may_bring_different_numbers_of_rows_with_padding_rows_or_without() -> None:
    made = batches(Zigzag(), 2, [7], [0])

    def padded_on_rank_0(args: dict[str, Any]) -> dict[str, Any]:
        batch, kv = args["batch"], args["kv"]
        assert kv.shape[0] == (3, 4)[batch.cp_rank]
        return {"kv": packed(torch.cat([kv, kv])[: batch.nnz_padded], Bf16Row, Rotated, batch)}

    for pool, want in zip(run(made, padded_on_rank_0), run(made), strict=True):
        assert torch.equal(pool, want)


def test_a_fault_on_one_rank_ends_the_wait_of_the_others_and_no_pool_is_written() -> None:
    made, pools = batches(), {}

    def floats_on_rank_1(args: dict[str, Any]) -> dict[str, Any]:
        pools[args["comm"].rank] = args["pool"]
        return {"kv": args["kv"].double()} if args["comm"].rank else {}

    with pytest.raises(RankError) as caught:
        run(made, floats_on_rank_1)
    assert (caught.value.code, caught.value.headline) == ("DSA502", "rank 1 of 2 failed before collective 1")
    text = f"failed: StageInputError DSA103: {NAME}: kv is float64, not u8"
    assert dict(caught.value.facts)["rank 1"].splitlines()[0] == text
    assert all(torch.equal(pools[rank], valid_args(NAME, made[rank])["pool"]) for rank in (0, 1))


def test_ranks_without_a_token_take_part() -> None:
    made = batches(Zigzag(), 4, [1], [0])
    assert [batch.nnz_local for batch in made] == [1, 0, 0, 0]
    pools = run(made)
    assert all(torch.equal(pool, pools[0]) for pool in pools)
    assert not torch.equal(pools[0], valid_args(NAME, made[0])["pool"])


def test_a_rank_that_does_not_come_is_named_and_one_that_comes_late_is_waited_for() -> None:
    batch = batches()[0]
    group = SimulatedGroup(2, 0.05)
    group.comm(1)
    args = {**valid_args(NAME, batch), "comm": group.comm(0)}
    error = refusal(gather_write_kv, **args)
    assert (error.code, error.headline) == ("DSA503", "rank 1 of 2 did not come to collective 1 within 0.05 s")
    assert torch.equal(args["pool"], valid_args(NAME, batch)["pool"])

    def late(args: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.05 * args["comm"].rank)
        return {}

    assert len(run(batches(), late)) == 2
