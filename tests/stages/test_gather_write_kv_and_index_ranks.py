"""`gather_write_kv_and_index` on ranks that do not fit together: each fault of the group, beside a near miss."""

import time
from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import Comm, CpBatch, checking_values
from dsa_contracts.core.errors import RankError
from dsa_contracts.dsa.row_formats import index_bf16_format
from dsa_contracts.dsa.states import Bf16Row, IndexBf16Row, Rotated
from dsa_cp.comm import SimulatedGroup, run_ranks
from dsa_cp.layouts import VllmReplicated, Zigzag
from dsa_cp.stages import gather_write_kv_and_index
from tests.support.branded import batches, packed, pool_of
from tests.support.stage_calls import refusal, refused, valid_args

NAME = "gather_write_kv_and_index"
Args = dict[str, Any]


def run(made: tuple[CpBatch[Any], ...], changes: Any = None) -> list[tuple[Tensor, Tensor]]:
    """Both pools of every rank after a call; `changes(args)` replaces some of a rank's arguments."""

    def body(comm: Comm) -> tuple[Tensor, Tensor]:
        args = {**valid_args(NAME, made[comm.rank]), "comm": comm}
        args |= changes(args) if changes else {}
        gather_write_kv_and_index(**args)
        return args["pool"], args["index_pool"]

    return run_ranks(len(made), body)


def are_equal(pools: list[tuple[Tensor, Tensor]], others: list[tuple[Tensor, Tensor]]) -> bool:
    return all(torch.equal(*pair) for rank in zip(pools, others, strict=True) for pair in zip(*rank, strict=True))


def untouched(batch: CpBatch[Any]) -> tuple[Tensor, Tensor]:
    """Both pools as they are before a call."""
    args = valid_args(NAME, batch)
    return args["pool"], args["index_pool"]


def test_a_group_that_is_not_the_batchs_is_refused_and_its_own_is_not() -> None:
    made = batches()
    args = valid_args(NAME, made[0])
    error = refused(NAME, args, comm=SimulatedGroup(2).comm(1))
    assert (error.code, error.headline) == ("DSA113", f"{NAME}: comm is rank 1 of 2, the batch was cut for rank 0 of 2")
    assert refused(NAME, args, comm=SimulatedGroup(3).comm(0)).code == "DSA113"
    assert len(run(made)) == 2


class Reversed:
    """A group whose collective gives the last rank's rows first."""

    def __init__(self, comm: Comm) -> None:
        self.comm, self.size, self.rank = comm, comm.size, comm.rank
        self.agree, self.fail, self.done = comm.agree, comm.fail, comm.done

    def all_gather(self, rows: Tensor) -> Tensor:
        return torch.cat(self.comm.all_gather(rows).chunk(self.size)[::-1])


def backwards(args: Args) -> Args:
    return {"comm": Reversed(args["comm"])}


def test_a_group_in_another_order_is_refused_where_values_are_read() -> None:
    with checking_values():
        error = refusal(run, batches(Zigzag(), 2, [8], [0]), backwards)
    text = f"{NAME}: gathered row 0 is row 2 of the batch, in rank order it is 0"
    assert (error.code, error.headline) == ("DSA122", text)


def test_the_order_of_a_group_is_not_looked_at_without_values_and_not_seen_in_rows_that_every_rank_has() -> None:
    assert len(run(batches(Zigzag(), 2, [8], [0]), backwards)) == 2
    replicated = batches(VllmReplicated(), 2, [3], [0])
    with checking_values():
        assert are_equal(run(replicated, backwards), run(replicated))


def came_with(number: int, *facts: str) -> str:
    """The text in which every rank of two reads what both came with."""
    lines = [f"  rank {rank}    {text}" for rank, text in enumerate(facts)]
    return "\n".join([f"ranks 0, 1 of 2 came to collective {number} with different facts", *lines])


def test_ranks_with_different_batches_are_told_so_before_rows_move() -> None:
    short, long = batches(Zigzag(), 2, [8], [0]), batches(Zigzag(), 2, [9], [0])
    widths = "u8[rows, 4, 24] u8[rows, 4, 16] u8[rows, 24] u8[rows, 16] i64[rows]"
    shared = f"{NAME} layer=None {widths} bf16 index_bf16 zigzag cp_size=2"
    assert str(refusal(run, (short[0], long[1]))) == "RankError DSA501: " + came_with(
        1,
        f"{shared} nnz_padded=4 extend=[8] prefix=[0] plan=-",
        f"{shared} nnz_padded=5 extend=[9] prefix=[0] plan=-",
    )


def test_ranks_with_indexer_rows_of_different_widths_are_told_so_before_rows_move() -> None:
    made = batches(Zigzag(), 2, [8], [0])
    pools = {}

    def narrow_on_rank_1(args: Args) -> Args:
        pools[args["comm"].rank] = args["pool"], args["index_pool"]
        if args["comm"].rank == 0:
            return {}
        kv = packed(args["index_kv"][:, :8].contiguous(), IndexBf16Row, Rotated, args["batch"])
        pool = pool_of(args["index_pool"][..., :8].contiguous(), IndexBf16Row)
        return {"index_pool": pool, "index_kv": kv, "index_format": index_bf16_format(4)}

    error = refusal(run, made, narrow_on_rank_1)
    facts = "nnz_padded=4 extend=[8] prefix=[0] plan=-"
    said = [
        f"u8[rows, 4, {w}] u8[rows, 24] u8[rows, {w}] i64[rows] bf16 index_bf16 zigzag cp_size=2 {facts}" for w in (16, 8)
    ]
    start = f"{NAME} layer=None u8[rows, 4, 24]"
    assert str(error) == "RankError DSA501: " + came_with(1, f"{start} {said[0]}", f"{start} {said[1]}")
    for rank in (0, 1):
        assert are_equal([pools[rank]], [untouched(made[rank])])


def test_ranks_may_bring_different_numbers_of_rows_with_padding_rows_or_without() -> None:
    made = batches(Zigzag(), 2, [7], [0])

    def padded_on_rank_0(args: Args) -> Args:
        batch, marks = args["batch"], {"kv": Bf16Row, "index_kv": IndexBf16Row}
        assert args["kv"].shape[0] == (3, 4)[batch.cp_rank]
        longer = {name: torch.cat([args[name]] * 2)[: batch.nnz_padded] for name in marks}
        return {name: packed(longer[name], mark, Rotated, batch) for name, mark in marks.items()}

    assert are_equal(run(made, padded_on_rank_0), run(made))


@pytest.mark.parametrize("name", ["kv", "index_kv", "index_pool"])
def test_a_fault_on_one_rank_ends_the_wait_of_the_others_and_no_pool_is_written(name: str) -> None:
    made, pools = batches(), {}

    def floats_on_rank_1(args: Args) -> Args:
        pools[args["comm"].rank] = args["pool"], args["index_pool"]
        return {name: args[name].double()} if args["comm"].rank else {}

    with pytest.raises(RankError) as caught:
        run(made, floats_on_rank_1)
    assert (caught.value.code, caught.value.headline) == ("DSA502", "rank 1 of 2 failed before collective 1")
    text = f"failed: StageInputError DSA103: {NAME}: {name} is float64, not u8"
    assert dict(caught.value.facts)["rank 1"].splitlines()[0] == text
    for rank in (0, 1):
        assert are_equal([pools[rank]], [untouched(made[rank])])


def test_ranks_without_a_token_take_part() -> None:
    made = batches(Zigzag(), 4, [1], [0])
    assert [batch.nnz_local for batch in made] == [1, 0, 0, 0]
    pools = run(made)
    assert are_equal(pools, pools[:1] * 4)
    assert not are_equal(pools[:1], [untouched(made[0])])


def test_a_rank_that_does_not_come_is_named_and_one_that_comes_late_is_waited_for() -> None:
    batch = batches()[0]
    group = SimulatedGroup(2, 0.05)
    group.comm(1)
    args = {**valid_args(NAME, batch), "comm": group.comm(0)}
    error = refusal(gather_write_kv_and_index, **args)
    assert (error.code, error.headline) == ("DSA503", "rank 1 of 2 did not come to collective 1 within 0.05 s")
    assert are_equal([(args["pool"], args["index_pool"])], [untouched(batch)])

    def late(args: Args) -> Args:
        time.sleep(0.05 * args["comm"].rank)
        return {}

    assert len(run(batches(), late)) == 2
