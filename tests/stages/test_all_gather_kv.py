from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import Comm, CpBatch, Layout, brand_of, checking_values
from dsa_contracts.core.errors import RankError
from dsa_contracts.core.marks import mark_text
from dsa_contracts.dsa.row_formats import bf16_format, fp8_format
from dsa_contracts.dsa.states import Bf16Row, Fp8Row, Fp8Row656, Packed, Rotated
from dsa_cp.comm import SimulatedGroup, run_ranks
from dsa_cp.layouts import Interleave, VllmReplicated, VllmZigzag, Zigzag
from dsa_cp.stages import all_gather_kv, restore_order
from tests.support.branded import BF16, WIDE, batches, comm_of, in_sequence, local, normal
from tests.support.messages import contract_and_ran
from tests.support.stage_calls import faulty, refusal, refused, valid_args
from tests.support.stage_values import rows_under_scale

ONE = fp8_format(1, 1)
"""Rows of two bytes: the token, and the token + 100."""


def rows_of(tokens: Tensor) -> Tensor:
    return torch.stack([tokens, tokens + 100], dim=1).byte()


def gather(made: tuple[CpBatch[Any], ...], *, padded: bool = False) -> list[list[int]]:
    """The first byte of each gathered row on every rank; rows of padding hold 77 before the gather."""

    def body(comm: Comm) -> list[int]:
        batch = made[comm.rank]
        rows = batch.padded_rows if padded else batch.local_rows
        bytes_ = rows_of(torch.where(rows >= 0, rows + 1, 77))
        kv = all_gather_kv(local(bytes_, Packed[Fp8Row, Rotated], batch), ONE, batch, comm)
        found: list[int] = kv[:, 0].tolist()
        assert kv[:, 1].tolist() == [byte + 100 if byte else 0 for byte in found]
        return found

    with checking_values():
        return run_ranks(len(made), body)


def test_rows_come_rank_after_rank_the_same_on_every_rank() -> None:
    assert gather(batches(Zigzag(), 2, [8], [0])) == [[1, 2, 7, 8, 3, 4, 5, 6]] * 2
    assert gather(batches(Interleave(), 2, [8], [0])) == [[1, 3, 5, 7, 2, 4, 6, 8]] * 2


def test_short_ranks_are_padded_with_rows_of_0() -> None:
    assert gather(batches(Zigzag(), 2, [7], [0])) == [[1, 2, 7, 0, 3, 4, 5, 6]] * 2
    assert gather(batches(Interleave(), 4, [2], [0])) == [[1, 2, 0, 0]] * 4


@pytest.mark.parametrize("padded", [False, True])
def test_padding_rows_of_an_engine_are_0_whatever_they_held(padded: bool) -> None:
    made = batches(Zigzag(), 2, [3, 1], [0, 0], padded_lens=[4, 4], row_alignment=5)
    assert [batch.padded_rows.tolist() for batch in made] == [[0, 3, -1, -1, -1], [1, -1, 2, -1, -1]]
    assert gather(made, padded=padded) == [[1, 4, 0, 0, 0, 2, 0, 3, 0, 0]] * 2


def test_replicated_rows_are_sent_by_every_rank() -> None:
    assert gather(batches(VllmReplicated(), 2, [3], [0])) == [[1, 2, 3, 1, 2, 3]] * 2


def test_one_rank_gathers_its_own_rows() -> None:
    assert gather(batches(Zigzag(), 1, [5], [0])) == [[1, 2, 3, 4, 5]]


@pytest.mark.parametrize(
    "layout", [Zigzag(), Interleave(), Interleave(block=3), VllmZigzag(), VllmReplicated()], ids=lambda layout: layout.name
)
def test_a_gather_and_a_restore_give_every_rank_all_rows_in_sequence_order(layout: Layout) -> None:
    made = batches(layout, 3, [5, 1, 17, 2], [0, 0, 0, 0])
    whole = torch.randint(0, 256, (25, 24), generator=torch.Generator().manual_seed(1)).byte()

    def body(comm: Comm) -> bool:
        batch = made[comm.rank]
        kv = local(whole[batch.local_rows], Packed[Bf16Row, Rotated], batch)
        gathered = all_gather_kv(kv, BF16, batch, comm)
        brand = brand_of(gathered)
        assert brand is not None
        assert mark_text(brand.kind.rows) == f"Global[RankMajor[{type(layout).__name__}]]"
        return torch.equal(restore_order(gathered, batch), whole)

    assert run_ranks(3, body) == [True] * 3


def test_columns_of_wider_rows_are_gathered_as_they_are() -> None:
    made = batches()
    wide = normal(12, 36).view(torch.uint8)

    def body(comm: Comm) -> tuple[Tensor, Tensor]:
        batch = made[comm.rank]
        columns = wide[: batch.nnz_local, 8:32]
        assert not columns.is_contiguous()
        parts = (columns, columns.contiguous())
        first, second = (all_gather_kv(local(part, Packed[Bf16Row, Rotated], batch), BF16, batch, comm) for part in parts)
        return first, second

    for first, second in run_ranks(2, body):
        assert torch.equal(first, second)


def test_e4m3_codes_are_refused_before_they_reach_the_collective() -> None:
    batch = batches()[0]
    args = valid_args("all_gather_kv", batch)
    error = refused("all_gather_kv", args, kv=args["kv"].view(torch.float8_e4m3fn))
    assert str(error).splitlines()[0] == "StageInputError DSA103: all_gather_kv: kv is e4m3, not u8"
    assert error.facts[-1] == ("try", "send bytes: kv.view(torch.uint8), not .to(torch.uint8), which changes the values")


def test_rows_of_another_width_are_refused() -> None:
    batch = batches()[0]
    error = refused("all_gather_kv", valid_args("all_gather_kv", batch), row_format=bf16_format(8, 6))
    assert (error.code, error.headline) == ("DSA110", "all_gather_kv: kv is 24 bytes wide, a row of bf16 has 28")


def test_rows_that_were_gathered_once_are_refused() -> None:
    (batch,) = batches(Zigzag(), 1, [8], [0])
    args = valid_args("all_gather_kv", batch)
    gathered = all_gather_kv(**args)
    error = refused("all_gather_kv", args, kv=gathered, comm=comm_of(batch))
    assert str(error) == "\n".join(
        [
            "StageInputError DSA106: all_gather_kv: kv holds Global[RankMajor[Zigzag]] rows, not Local[Zigzag]",
            (
                "  expected  u8[N row_bytes] UnitLast, Local[L], Packed[F, P];"
                " nnz_local=8, bound by batch (zigzag, cp_rank 0 of 1); nnz_padded=8, bound by batch (zigzag, cp_rank 0 of 1)"
            ),
            "  got       u8[8, 24] strides (24, 1) cpu",
            "  because   its brand: Global[RankMajor[Zigzag]], Packed[Bf16Row, Rotated], zigzag, from all_gather_kv.gathered",
            "  where     cp_rank=0 of 1, zigzag",
            contract_and_ran(all_gather_kv),
            "  try       kv must be this rank's rows; rows that were gathered once hold all ranks' rows already",
        ]
    )
    again = in_sequence(args["kv"].clone(), Packed[Bf16Row, Rotated], batch)
    assert refused("all_gather_kv", args, kv=again, comm=comm_of(batch)).code == "DSA106"


def test_a_group_that_is_not_the_batchs_is_refused() -> None:
    batch = batches()[0]
    args = valid_args("all_gather_kv", batch)
    error = refused("all_gather_kv", args, comm=SimulatedGroup(2).comm(1))
    text = "all_gather_kv: comm is rank 1 of 2, the batch was cut for rank 0 of 2"
    assert (error.code, error.headline) == ("DSA113", text)
    assert error.facts[-1] == ("try", "take cp_size and cp_rank from the CP group once, and carry them")
    assert refused("all_gather_kv", args, comm=SimulatedGroup(1).comm(0)).code == "DSA113"


class Reversed:
    """A group whose collective gives the last rank's rows first."""

    def __init__(self, comm: Comm) -> None:
        self.comm, self.size, self.rank = comm, comm.size, comm.rank
        self.agree, self.fail, self.done = comm.agree, comm.fail, comm.done

    def all_gather(self, rows: Tensor) -> Tensor:
        return torch.cat(self.comm.all_gather(rows).chunk(self.size)[::-1])


def test_a_group_in_another_order_is_refused_where_values_are_read() -> None:
    made = batches(Zigzag(), 2, [8], [0])

    def body(comm: Comm) -> Any:
        return all_gather_kv(**{**valid_args("all_gather_kv", made[comm.rank]), "comm": Reversed(comm)})

    assert len(run_ranks(2, body)) == 2
    with checking_values():
        error = refusal(run_ranks, 2, body)
    text = "all_gather_kv: gathered row 0 is row 2 of the batch, in rank order it is 0"
    assert (error.code, error.headline) == ("DSA122", text)


def test_ranks_with_different_batches_are_told_so_before_rows_move() -> None:
    short, long = batches(Zigzag(), 2, [8], [0]), batches(Zigzag(), 2, [9], [0])

    def body(comm: Comm) -> Any:
        batch = (short if comm.rank == 0 else long)[comm.rank]
        return all_gather_kv(**{**valid_args("all_gather_kv", batch), "comm": comm})

    with pytest.raises(RankError) as caught:
        run_ranks(2, body)
    shared = "all_gather_kv layer=None u8[rows, 24] bf16 zigzag cp_size=2"
    assert str(caught.value) == "\n".join(
        [
            "RankError DSA501: ranks 0, 1 of 2 came to collective 1 with different facts",
            f"  rank 0    {shared} nnz_padded=4 extend=[8] prefix=[0] plan=-",
            f"  rank 1    {shared} nnz_padded=5 extend=[9] prefix=[0] plan=-",
        ]
    )


def test_a_fault_on_one_rank_ends_the_wait_of_the_others() -> None:
    made = batches()

    def body(comm: Comm) -> Any:
        args = {**valid_args("all_gather_kv", made[comm.rank]), "comm": comm}
        return all_gather_kv(**{**args, "kv": args["kv"].double()} if comm.rank else args)

    with pytest.raises(RankError) as caught:
        run_ranks(2, body)
    assert caught.value.code == "DSA502"
    assert "StageInputError DSA103: all_gather_kv: kv is float64, not u8" in str(caught.value)


def test_a_rank_that_does_not_come_is_named() -> None:
    batch = batches()[0]
    group = SimulatedGroup(2, 0.05)
    group.comm(1)
    with pytest.raises(RankError) as caught:
        all_gather_kv(**{**valid_args("all_gather_kv", batch), "comm": group.comm(0)})
    assert (caught.value.code, caught.value.headline) == ("DSA503", "rank 1 of 2 did not come to collective 1 within 0.05 s")


@pytest.mark.parametrize(("left_over", "refused_with"), [(0, ""), (9, "DSA120")])
def test_padding_rows_that_hold_what_a_buffer_held_are_refused_by_value(left_over: int, refused_with: str) -> None:
    batch = batches(Zigzag(), 1, [3], [0], padded_lens=[5])[0]
    args = valid_args("all_gather_kv", batch)

    def body(given: dict[str, Any]) -> Tensor:
        padded: Tensor = given["kv"].new_full((batch.nnz_padded, given["kv"].shape[1]), left_over)
        padded[batch.padded_index] = given["kv"]
        return padded

    with checking_values():
        if not refused_with:
            faulty("all_gather_kv", body)(**args)
            return
        error = refusal(faulty("all_gather_kv", body), **args)
    assert (error.code, error.headline) == ("DSA120", "all_gather_kv: row 3 of gathered is padding and not 0")


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), -1.0, 0.0])
def test_rows_under_a_scale_that_is_none_are_refused_by_value(scale: float) -> None:
    batch = batches(Zigzag(), 1, [5], [0])[0]
    args: dict[str, Any] = {"row_format": WIDE, "batch": batch, "comm": comm_of(batch)}

    def rows(value: float) -> Any:
        return local(rows_under_scale(WIDE, batch.nnz_local, value), Packed[Fp8Row656, Rotated], batch)

    with checking_values():
        error = refusal(all_gather_kv, **args, kv=rows(scale))
        assert "DSA112: all_gather_kv: row 0 of kv has a scale that is not positive" in str(error)
        all_gather_kv(**{**args, "comm": comm_of(batch)}, kv=rows(0.5))
