"""Dims bound once for a crew and shared by its stages, and the log of what was checked."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from dsa_contracts.core.bound_dims import BoundDims, BoundSize, CheckLog
from dsa_contracts.core.brands import brand
from dsa_contracts.core.contract import contract
from dsa_contracts.core.marks import BF16, Contiguous, Plain, UnitLast
from dsa_contracts.core.modes import Mode, checking_values
from dsa_contracts.core.runtime.stage import stage
from dsa_contracts.core.tensors import Ten
from tests.support.messages import contract_and_ran, refusal
from tests.support.toy import (
    Cold,
    Crew,
    Depth,
    InOrder,
    Mine,
    N,
    V,
    Width,
    all_rows,
    args_of,
    checked_average,
    checked_turn,
    cold,
    crew_of,
    picked,
    rows_of,
    turn_with,
)

CREW = "crew (turns, runner 0 of 2)"


def test_the_crew_binds_the_row_counts() -> None:
    assert crew_of().dims.dims == {
        "total": BoundSize(7, CREW),
        "own": BoundSize(3, CREW),
        "seats": BoundSize(4, CREW),
    }


def test_the_first_binder_keeps_a_dim() -> None:
    dims = BoundDims()
    dims.bind("total", 7, "crew")
    dims.bind("total", 7, "turn.x")
    assert dims.dims == {"total": BoundSize(7, "crew")}
    assert (dims.value("total"), dims.value("own")) == (7, None)
    assert dims.agrees((("total", 7, "x"), ("own", 3, "x")))
    assert not dims.agrees((("total", 8, "x"),))
    dims.bind("own", 3, "crew")
    assert dims.describe() == "total=7, own=3"


def test_a_dim_that_one_stage_binds_holds_for_the_next_and_the_binder_is_named() -> None:
    crew = crew_of()
    checked_turn()(*args_of(crew))
    assert crew.dims.dims["width"] == BoundSize(2, "turn.x")
    text = refusal(checked_average(), all_rows(rows_of(7, 8), InOrder, Plain, crew), crew)
    assert text == (
        "StageInputError DSA102: average: x has 8 width, width is 2, bound by turn.x\n"
        "  expected  bf16[total width] Contiguous, All[InOrder], Plain; "
        f"total=7, bound by {CREW}; width=2, bound by turn.x\n"
        "  got       bf16[7, 8] strides (8, 1) cpu\n"
        "  where     runner=0 of 2, turns\n"
        f"{contract_and_ran(checked_average())}\n"
        "  try       pass a tensor of the bound size: a dim has one size in all calls of its scope"
    )
    assert checked_average()(all_rows(rows_of(7), InOrder, Plain, crew), crew).shape == (7, 2)


def test_a_model_binds_its_dims_in_its_name() -> None:
    crew = crew_of()
    crew.dims.bind("width", 128, "model tiny")
    text = refusal(checked_turn(), *args_of(crew))
    assert text.splitlines()[0] == ("StageInputError DSA102: turn: x has 2 width, width is 128, bound by model tiny")
    assert checked_turn()(*args_of(crew, x=rows_of(3, 128))).shape == (3, 128)


@pytest.mark.parametrize("remembered", [False, True])
def test_each_crew_has_its_own_dims_whether_the_call_is_remembered_or_not(remembered: bool) -> None:
    function = checked_turn()
    if remembered:
        function(*args_of(crew_of()))
    other = crew_of()
    other.dims.bind("width", 128, "model tiny")
    assert "width is 128, bound by model tiny" in refusal(function, *args_of(other))
    third = crew_of()
    function(*args_of(third))
    assert third.dims.dims["width"] == BoundSize(2, "turn.x")


def refused_for_its_last_argument(crew: Crew[Any]) -> None:
    refusal(checked_turn(), *args_of(crew, scale="2"))


def refused_for_its_result(crew: Crew[Any]) -> None:
    refusal(turn_with(lambda x, *args: x.float()), *args_of(crew))


def refused_by_the_implementation(crew: Crew[Any]) -> None:
    def fail(*args: Any) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        turn_with(fail)(*args_of(crew))


@pytest.mark.parametrize("fail", [refused_for_its_last_argument, refused_for_its_result, refused_by_the_implementation])
def test_a_call_that_fails_binds_nothing(fail: Any) -> None:
    crew = crew_of()
    fail(crew)
    assert crew.dims.value("width") is None
    assert crew.log == CheckLog()
    assert checked_turn()(*args_of(crew, x=rows_of(3, 8))).shape == (3, 8)


@contract(returns=("wide",))
def widen(x: Ten[Mine[V], Cold, BF16, UnitLast, N, Depth], crew: Crew[V]) -> Ten[Mine[V], Cold, BF16, Contiguous, N, Width]:
    raise NotImplementedError


@pytest.mark.parametrize("remembered", [False, True])
def test_a_result_binds_dims_and_is_bound_by_them_as_an_argument_is(remembered: bool) -> None:
    function: Any = stage(widen, mode=Mode.DEVELOPMENT)(lambda x, crew: brand(x.repeat(1, 2)))
    first, second = crew_of(), crew_of()
    if remembered:
        function(cold(rows_of(), first), first)
        assert first.dims.dims["width"] == BoundSize(4, "widen.wide")
    second.dims.bind("width", 128, "model tiny")
    second.dims.dims["depth"] = BoundSize(2, "test")
    text = refusal(function, cold(rows_of(), second), second)
    assert text.splitlines()[0] == ("StageOutputError DSA202: widen: wide has 4 width, width is 128, bound by model tiny")


def test_all_layers_of_a_crew_share_dims_and_log() -> None:
    crew, function = crew_of(), checked_turn()
    function(*args_of(crew.at_layer(0)))
    assert "bound by turn.x" in refusal(function, *args_of(crew.at_layer(1), x=rows_of(3, 8)))
    assert crew.log.calls == {"turn": 1}


def test_the_log_counts_calls_new_checks_and_tensors_without_brand() -> None:
    crew, function = crew_of(), checked_turn()
    function(*args_of(crew))
    counted = crew.log.checked["turn"]
    function(*args_of(crew))
    function(*args_of(crew, x=rows_of()))
    assert crew.log.calls == {"turn": 3}
    assert crew.log.unknown == {"turn": 1}
    assert crew.log.checked["turn"] > counted
    picked(crew.numbers, crew.own_rows, crew)
    assert crew.log.calls == {"turn": 3, "pick": 1}


def test_values_that_were_read_are_counted() -> None:
    first = crew_of()
    picked(first.numbers, first.own_rows, first)
    crew = crew_of()
    picked(crew.numbers, crew.own_rows, crew)
    assert crew.log.checked == {}
    with checking_values():
        picked(crew.numbers, crew.own_rows, crew)
    assert crew.log.checked["pick"] > 0


def test_ranks_in_threads_do_not_share_dims() -> None:
    function, gate = checked_turn(), Barrier(4)
    crews = [crew_of(rank, runners=4) for rank in range(4)]

    def run(rank: int) -> list[int]:
        gate.wait(10)
        widths = []
        for _ in range(20):
            turned = function(*args_of(crews[rank], x=rows_of(len(crews[rank].mine), rank + 1)))
            widths.append(turned.shape[1])
        return widths

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(4))) == [[rank + 1] * 20 for rank in range(4)]
    assert [crew.dims.value("width") for crew in crews] == [1, 2, 3, 4]
    assert [crew.log.calls["turn"] for crew in crews] == [20] * 4


def test_dims_are_bound_from_tensors_too_large_to_multiply() -> None:
    crew = crew_of()
    for name in ("width", "height", "depth"):
        crew.dims.bind(name, 2**40, "a large model")
    text = refusal(checked_turn(), *args_of(crew))
    assert "width is 1099511627776, bound by a large model" in text
