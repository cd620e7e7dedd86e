"""Faults of the kinds of the thirty reports that are none of them: each is refused, and a right call beside it is not."""

from dataclasses import replace
from typing import Any

import pytest
import torch

import dsa_cp.stages as stages
from dsa_contracts import ContractError, CpBatch, checking_values
from dsa_contracts.dsa.states import Bf16Row, Packed, Raw, Rotated
from dsa_cp.comm import run_ranks
from dsa_cp.layouts import Interleave, Zigzag, build_batches
from tests.support.branded import BF16, ROPE, batches, bytes_of, gathered, normal, paged, pool_of
from tests.support.stage_calls import call, faulty, valid_args

WRITE: Any = stages.write_kv
REBUILD: Any = stages.rebuild_positions
"""Tests hand over what mypy refuses by design."""


def even() -> tuple[CpBatch[Any], ...]:
    """Two requests with prefixes; gathered rows have no padding, so that no size tells one order from the other."""
    return batches(Zigzag(), 2, [8, 8], [2, 3])


def code_of(stage: str, args: dict[str, Any], **changes: Any) -> str:
    """The code that values mode refuses a call with."""
    with checking_values(), pytest.raises(ContractError) as caught:
        call(stage, args, **changes)
    return caught.value.code


def passes(stage: str, args: dict[str, Any], **changes: Any) -> None:
    with checking_values():
        call(stage, args, **changes)


@pytest.mark.parametrize("stage", ["attend", "select_topk"])
def test_a_page_table_in_another_order_of_requests_is_refused_without_a_brand_too(stage: str) -> None:
    args = valid_args(stage, even()[0])
    table = args["page_table"].clone()
    assert code_of(stage, args, page_table=table.flip(0).contiguous()) == "DSA114"
    shifted = table.clone()
    shifted[:, :-1] = table[:, 1:]
    assert code_of(stage, args, page_table=shifted) == "DSA114"
    passes(stage, args, page_table=table)


@pytest.mark.parametrize(
    ("to", "taken", "is_legal"), [((1, 0), (0, 2), False), ((0, 1), (0, 0), False), ((1, 0), (0, 0), True)]
)
def test_a_page_of_two_writers_and_one_that_stands_twice_are_refused(
    to: tuple[int, int], taken: tuple[int, int], is_legal: bool
) -> None:
    """The third is a prefix page that two requests share."""
    slots, table, _ = paged([8, 8], [8, 8], 4)
    pages = table.clone()
    pages[to] = table[taken]
    batch = build_batches(Zigzag(), 2, [8, 8], [8, 8], out_cache_loc=slots, page_table=pages, page_size=4)[0]
    args = valid_args("attend", batch)
    if is_legal:
        passes("attend", args)
    else:
        assert code_of("attend", args) == "DSA114"


def test_topk_of_another_rank_must_say_whose_it_is() -> None:
    args, other = (valid_args("attend", batch) for batch in batches(Interleave(), 2, [8], [0]))
    assert code_of("attend", args, topk_indices=other["topk_indices"].clone()) == "DSA125"
    passes("attend", args)


def test_positions_of_rank_major_rows_are_those_of_the_gathered_rows() -> None:
    batch = even()[0]
    args = valid_args("apply_rope", batch)
    x = gathered(normal(16, ROPE), Raw, batch)
    assert code_of("apply_rope", args, x=x, positions=batch.positions.clone()) == "DSA115"
    passes("apply_rope", args, x=x, positions=batch.positions[batch.gathered_rows])


def test_slots_are_those_of_the_batch_without_a_page_table_too() -> None:
    slots, _, count = paged([8, 8], [0, 0], 4)
    batch = build_batches(Zigzag(), 2, [8, 8], out_cache_loc=slots, page_size=4)[0]
    kv = gathered(bytes_of(normal(16, 12)), Packed[Bf16Row, Rotated], batch)
    pool = pool_of(torch.zeros(count, 4, 24, dtype=torch.uint8), Bf16Row)
    own, in_sequence = batch.required("rank_major_loc", "test"), batch.required("out_cache_loc", "test")
    for wrong in (in_sequence.clone(), (own + 4) % 28, own.roll(8)):
        with checking_values(), pytest.raises(ContractError, match=r"DSA116.*out_cache_loc gives row"):
            WRITE(pool, kv, wrong, BF16, batch)
    with checking_values():
        WRITE(pool, kv, own.clone(), BF16, batch)


CONTRADICTIONS: dict[str, tuple[str, Any]] = {
    "positions without prefix": ("DSA115", lambda batch: replace(batch, positions=torch.cat([torch.arange(8)] * 2))),
    "lengths that are positions": ("DSA117", lambda batch: replace(batch, causal_lens=batch.causal_lens - 1)),
    "rows of the other rank": ("DSA119", lambda batch: replace(batch, cp_rank=1)),
    "a prefix that has grown": ("DSA115", lambda batch: replace(batch, prefix_lens=(2, 4))),
}


@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_a_batch_that_contradicts_its_own_lengths_is_refused(what: str) -> None:
    code, change = CONTRADICTIONS[what]
    batch = even()[0]
    wrong = change(batch)
    with checking_values(), pytest.raises(ContractError) as caught:
        REBUILD(wrong.positions, wrong.local_rows, wrong)
    assert caught.value.code == code
    assert "its lengths say" in str(caught.value)
    with checking_values():
        REBUILD(batch.positions, batch.local_rows, batch)


def test_a_table_of_other_numbers_than_cosines_and_sines_is_refused() -> None:
    args = valid_args("apply_rope", even()[0])
    table, half = args["cos_sin_cache"].clone(), ROPE // 2
    holed = table.clone()
    holed[5:] = float("nan")
    turned = torch.cat([table[:, half:], table[:, :half]], dim=1)
    woven = torch.stack([table[:, :half], table[:, half:]], dim=-1).flatten(1)
    from_one = torch.cat([table[1:], table[-1:]])
    for wrong in (turned, woven, from_one, holed, torch.zeros_like(table)):
        assert code_of("apply_rope", args, cos_sin_cache=wrong) == "DSA111"
    passes("apply_rope", args, cos_sin_cache=table)
    passes("apply_rope", args, cos_sin_cache=table * 1.3)


def test_a_pool_that_does_not_say_its_layer_is_refused_in_a_layer() -> None:
    batch = even()[0]
    inside, outside = valid_args("attend", batch.at_layer(0)), valid_args("attend", batch)
    with (
        checking_values(),
        pytest.raises(ContractError, match="DSA125: attend: nothing states which rows pool") as caught,
    ):
        call("attend", inside, pool=inside["pool"].clone())
    assert "state each layer's pool with dsa_contracts.declare_lasting" in str(caught.value)
    passes("attend", inside)
    passes("attend", outside, pool=outside["pool"].clone())


def half_a_write(args: dict[str, Any]) -> None:
    args["pool"].view(-1, args["pool"].shape[-1])[args["loc"][:-1]] = args["kv"][:-1]


def a_trim(args: dict[str, Any]) -> Any:
    return args["gathered"][args["batch"].gathered_rows >= 0].contiguous()


def a_falling_choice(args: dict[str, Any]) -> Any:
    return stages.select_topk(**args).flip(1).contiguous()


def no_choice(args: dict[str, Any]) -> Any:
    return torch.full_like(stages.select_topk(**args), -1)


@pytest.mark.parametrize(
    ("stage", "body", "code"),
    [
        ("write_kv", half_a_write, "DSA116"),
        ("restore_order", a_trim, "DSA119"),
        ("select_topk", a_falling_choice, "DSA118"),
        ("select_topk", no_choice, "DSA118"),
    ],
)
def test_a_kernel_that_does_other_work_than_its_contract_is_refused(stage: str, body: Any, code: str) -> None:
    args = valid_args(stage, even()[0])
    with checking_values(), pytest.raises(ContractError) as caught:
        faulty(stage, body)(**args)
    assert caught.value.code == code
    passes(stage, valid_args(stage, even()[0]))


def test_gathered_rows_of_ranks_in_another_order_are_refused() -> None:
    made = even()

    def body(comm: Any, turned: bool) -> None:
        def gather(given: dict[str, Any]) -> Any:
            rows = given["comm"].all_gather(given["kv"].contiguous())
            return rows.roll(rows.shape[0] // 2, dims=0) if turned else rows

        args = valid_args("all_gather_kv", made[comm.rank])
        args["kv"].fill_(comm.rank)
        with checking_values():
            faulty("all_gather_kv", gather)(**{**args, "comm": comm})

    run_ranks(2, lambda comm: body(comm, turned=False))
    with pytest.raises(ContractError) as caught:
        run_ranks(2, lambda comm: body(comm, turned=True))
    assert "DSA122" in str(caught.value)


def test_a_batch_with_another_page_size_is_not_recognised_as_the_one_before() -> None:
    batch = even()[0]
    args = valid_args("write_kv", batch)
    for _ in range(3):
        call("write_kv", args)
    with pytest.raises(ContractError, match="DSA114"):
        WRITE(args["pool"], args["kv"], args["loc"], BF16, replace(batch, page_size=8))
