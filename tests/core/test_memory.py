"""A call that passed is remembered by its signature; one that differs in anything that a contract reads is not."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from dsa_contracts.core.brands import brand_of, make_brand
from dsa_contracts.core.contract import contract
from dsa_contracts.core.invariant import Call, Invariant
from dsa_contracts.core.marks import BF16, Plain, UnitLast
from dsa_contracts.core.modes import Mode
from dsa_contracts.core.runtime import call_cache as memory_module
from dsa_contracts.core.runtime.stage import stage
from dsa_contracts.core.tensors import Ten
from dsa_contracts.core.views import set_brand
from tests.support.messages import refusal
from tests.support.toy import (
    Blocks,
    Crew,
    InOrder,
    Mine,
    Own,
    V,
    Warm,
    Width,
    all_rows,
    args_of,
    cache_of,
    checked_turn,
    cold,
    crew_of,
    mine,
    rows_of,
    turn_with,
)

pytestmark = pytest.mark.usefixtures("both_guards")


def new_checks(function: Callable[..., Any], *args: Any) -> int:
    """How many facts a call compares anew."""
    log = args[-1].log
    before = log.checked.get("turn", 0)
    function(*args)
    return int(log.checked.get("turn", 0) - before)


def test_a_call_that_passed_is_looked_up_and_adds_no_checks() -> None:
    crew, function = crew_of(), checked_turn()
    assert new_checks(function, *args_of(crew)) > 0
    assert new_checks(function, *args_of(crew)) == 0
    assert len(cache_of(function).calls) == 1


def test_the_same_call_in_the_next_layer_is_remembered() -> None:
    crew, function = crew_of(), checked_turn()
    assert new_checks(function, *args_of(crew.at_layer(0))) > 0
    assert [new_checks(function, *args_of(crew.at_layer(layer))) for layer in (1, 2, 61)] == [0, 0, 0]


def test_the_same_call_in_the_next_crew_is_remembered_and_binds_its_dims() -> None:
    function = checked_turn()
    assert new_checks(function, *args_of(crew_of())) > 0
    crew = crew_of()
    assert new_checks(function, *args_of(crew)) == 0
    assert crew.dims.value("width") == 2


def test_the_producer_of_a_tensor_is_no_part_of_its_signature() -> None:
    crew, function = crew_of(), checked_turn()
    function(*args_of(crew))
    x = cold(rows_of(), crew)
    set_brand(x, make_brand(cold_kind(x, "another"), crew.token, None))
    assert new_checks(function, *args_of(crew, x=x)) == 0


def give_other_data(x: Any) -> None:
    x.data = rows_of(2)


@pytest.mark.parametrize("change", [lambda x: x.t_(), lambda x: x.resize_(2, 2), lambda x: x.unsqueeze_(0), give_other_data])
def test_a_tensor_whose_shape_was_changed_in_place_is_looked_at_again(change: Callable[[Any], Any]) -> None:
    crew, function = crew_of(), checked_turn()
    x = cold(rows_of(), crew)
    assert new_checks(function, *args_of(crew, x=x)) > 0
    assert new_checks(function, *args_of(crew, x=x)) == 0
    x.mul_(2)
    assert new_checks(function, *args_of(crew, x=x)) == 0
    change(x)
    assert refusal(function, *args_of(crew, x=x)).split()[1].rstrip(":") in ("DSA102", "DSA109")


def cold_kind(x: Any, producer: str) -> Any:
    brand = brand_of(x)
    assert brand is not None
    kind = brand.kind
    return type(kind)(kind.rows, kind.state, kind.variant, producer)


Change = Callable[[Crew[Any]], dict[str, Any]]
LEGAL: dict[str, Change] = {
    "another row stride": lambda crew: {"x": cold(rows_of(3, 5)[:, :2], crew)},
    "no brand": lambda crew: {"x": rows_of()},
    "another number": lambda crew: {"scale": 3.0},
    "an int for a float": lambda crew: {"scale": 2},
    "padded rows": lambda crew: {"x": cold(rows_of(4), crew), "positions": mine(torch.arange(4), Plain, crew)},
}


@pytest.mark.parametrize("change", LEGAL)
def test_a_call_that_differs_is_checked_anew(change: str) -> None:
    crew, function = crew_of(), checked_turn()
    function(*args_of(crew))
    assert new_checks(function, *args_of(crew, **LEGAL[change](crew))) > 0
    assert new_checks(function, *args_of(crew, **LEGAL[change](crew))) == 0


def test_another_crew_size_and_another_layout_are_checked_anew() -> None:
    function = checked_turn()
    assert new_checks(function, *args_of(crew_of())) > 0
    for other in (crew_of(total=9), crew_of(0, Blocks()), crew_of(0, Blocks(2))):
        assert new_checks(function, *args_of(other)) > 0


ILLEGAL: dict[str, tuple[str, Change]] = {
    "a stale crew": ("DSA108: turn: x was made for another crew", lambda crew: {"x": cold(rows_of(), crew_of())}),
    "a stale layer": (
        "DSA108: turn: x was made for layer 1, this is layer 2",
        lambda crew: {"x": cold(rows_of(), crew.at_layer(1)), "crew": crew.at_layer(2)},
    ),
    "other rows": (
        "DSA106: turn: x holds All[InOrder] rows, not Mine[Turns]",
        lambda crew: {"x": all_rows(rows_of(), InOrder, Plain, crew)},
    ),
    "another state": ("DSA107: turn: x is Warm, not Cold", lambda crew: {"x": mine(rows_of(), Warm, crew)}),
    "another dtype": ("DSA103: turn: x is f32, not bf16", lambda crew: {"x": cold(rows_of().float(), crew)}),
    "other strides": ("DSA104: turn: x has last stride 3, not 1", lambda crew: {"x": cold(rows_of(2, 3).T, crew)}),
    "another device": ("DSA105: turn: x is on meta, the crew on cpu", lambda crew: {"x": cold(rows_of().to("meta"), crew)}),
    "another shape": (
        "DSA102: turn: x has 8 width, width is 2, bound by turn.x",
        lambda crew: {"x": cold(rows_of(3, 8), crew)},
    ),
    "another type": ("DSA101: turn: scale is str", lambda crew: {"scale": "2.0"}),
    "nothing": ("DSA101: turn: positions is None", lambda crew: {"positions": None}),
}


@pytest.mark.parametrize("change", ILLEGAL)
def test_a_stage_that_remembers_still_refuses(change: str) -> None:
    headline, make = ILLEGAL[change]
    crew, function = crew_of(), checked_turn()
    for _ in range(3):
        function(*args_of(crew.at_layer(2)))
    args = args_of(crew, **{key: value for key, value in make(crew).items() if key != "crew"})
    changed = (*args[:3], make(crew).get("crew", crew))
    for _ in range(2):
        assert refusal(function, *changed).splitlines()[0] == f"StageInputError {headline}"


def test_another_layout_of_the_same_shape_is_refused_after_a_call_was_remembered() -> None:
    function = checked_turn()
    one, block = (crew_of(0, Blocks(size), total=128) for size in (1, 64))
    function(*args_of(one))
    function(*args_of(block))
    mixed = (args_of(one)[0], *args_of(block)[1:])
    assert refusal(function, *mixed).startswith("StageInputError DSA106: turn: x is laid out as blocks, the crew as ")


def test_a_result_that_differs_is_checked_although_the_call_is_remembered() -> None:
    results = [rows_of(), rows_of(), rows_of().float()]
    function, crew = turn_with(lambda *args: results.pop(0)), crew_of()
    assert new_checks(function, *args_of(crew)) > 0
    assert new_checks(function, *args_of(crew)) == 0
    text = refusal(function, *args_of(crew))
    assert text.startswith("StageOutputError DSA203: turn: turned is f32, not bf16\n")


def test_a_call_that_fails_is_not_remembered() -> None:
    crew, function = crew_of(), turn_with(lambda *args: None)
    for _ in range(2):
        assert refusal(function, *args_of(crew)).startswith("StageOutputError DSA201: turn: turned is None\n")
    assert cache_of(function).calls == {}


def test_the_memory_is_bounded_and_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "CALLS_LIMIT", 3)
    monkeypatch.setattr(memory_module, "LATEST_LIMIT", 1)
    crew, function = crew_of(), checked_turn()
    for scale in (1.0, 2.0, 3.0, 4.0):
        assert new_checks(function, *args_of(crew, scale=scale)) > 0
    assert len(cache_of(function).calls) == 3
    assert new_checks(function, *args_of(crew, scale=4.0)) == 0
    assert new_checks(function, *args_of(crew, scale=1.0)) > 0
    assert new_checks(function, *args_of(crew, scale=2.0)) > 0


def test_the_limit_is_there() -> None:
    assert memory_module.CALLS_LIMIT == 1024


def test_the_results_that_one_call_remembers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "OUTPUT_LIMIT", 2)
    results = [torch.ones(3, 2 + at, dtype=torch.bfloat16)[:, :2].view(3, 2) for at in range(5)]
    crew = crew_of()

    @contract(returns=("y",))
    def loose(
        x: Ten[Mine[V], Plain, BF16, UnitLast, Own, Width], crew: Crew[V]
    ) -> Ten[Mine[V], Plain, BF16, UnitLast, Own, Width]:
        raise NotImplementedError

    function: Any = stage(loose, mode=Mode.DEVELOPMENT)(lambda x, crew: results.pop())  # type: ignore[arg-type, return-value]
    for _ in range(5):
        function(mine(rows_of(), Plain, crew), crew)
    (found,) = cache_of(function).calls.values()
    assert len(found.outputs) <= 2


def starts_at_its_memory() -> Invariant:
    def check(call: Call) -> str | None:
        offset = call.tensor("x").storage_offset()
        return f"x starts at {offset}" if offset else None

    return Invariant("starts_at_its_memory", "DSA104", "x", "x starts where its memory does", False, check, reads_offset=True)


def test_where_a_tensor_starts_in_its_memory_is_remembered_where_an_invariant_reads_it() -> None:
    @contract(requires=(starts_at_its_memory(),))
    def first_only(x: Ten[Mine[V], Plain, BF16, UnitLast, Own, Width], crew: Crew[V]) -> None: ...

    crew, rows = crew_of(), rows_of(4)
    function: Any = stage(first_only, mode=Mode.DEVELOPMENT)(lambda x, crew: None)
    for _ in range(2):
        function(mine(rows[:3], Plain, crew), crew)
    text = refusal(function, mine(rows[1:], Plain, crew), crew)
    assert text.splitlines()[0] == "StageInputError DSA104: first_only: x starts at 2"


def test_an_argument_that_cannot_be_hashed_is_checked_each_time() -> None:
    @contract()
    def listed(names: list[str], crew: Crew[V]) -> None: ...

    crew = crew_of()
    function: Any = stage(listed, mode=Mode.DEVELOPMENT)(lambda names, crew: None)
    for _ in range(2):
        function(["a"], crew)
    assert cache_of(function).calls == {}
    assert refusal(function, [1], crew).startswith("StageInputError DSA101: listed: names is list\n")
