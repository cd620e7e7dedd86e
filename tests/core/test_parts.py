"""Rows that are held as several tensors, where a contract names them packed into one; and what a call does not show."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts.core.brands import brand_of
from dsa_contracts.core.contract import contract
from dsa_contracts.core.declarations import declare_lasting
from dsa_contracts.core.errors import ContractDefinitionError, NotShownError
from dsa_contracts.core.invariant import Call, Invariant
from dsa_contracts.core.marks import BF16, U8, Contiguous, Plain, UnitLast
from dsa_contracts.core.modes import Mode
from dsa_contracts.core.parts import ABSENT, Parts
from dsa_contracts.core.runtime.stage import stage
from dsa_contracts.core.scope import Scope
from dsa_contracts.core.tensors import Ten
from tests.support.messages import contract_and_ran, refusal
from tests.support.toy import (
    B,
    Box,
    BoxBytes,
    Boxed,
    Cold,
    Crew,
    InOrder,
    Mine,
    N,
    Shelf,
    SmallBox,
    T,
    V,
    Warm,
    Width,
    all_rows,
    args_of,
    checked_turn,
    crew_of,
    mine,
    rows_of,
)

BOXED: Any = Boxed
BOX = Box(SmallBox, BF16)


class Halves(Parts):
    """The plain part of a box, and the one that is cold or warm."""

    def states(self, state: Any) -> tuple[object, ...]:
        """The second part is as warm as the box."""
        return Plain, state.__args__[1]


def as_wide_as_marked() -> Invariant:
    def check(call: Call) -> str | None:
        return None if call.width("boxes") == 8 else f"boxes has {call.width('boxes')} bytes a row, not 8"

    return Invariant("as_wide_as_marked", "DSA104", "boxes", "boxes has 8 bytes a row", False, check)


def starts_with_zero() -> Invariant:
    def check(call: Call) -> str | None:
        return "boxes starts with no zero" if int(call.tensor("boxes")[0, 0]) else None

    return Invariant("starts_with_zero", "DSA104", "boxes", "boxes starts with zero", False, check)


@contract(returns=("carried",), requires=(as_wide_as_marked(), starts_with_zero()))
def carry(
    boxes: Ten[Mine[V], Boxed[B, T], U8, UnitLast, N, BoxBytes],
    shelf: Ten[Shelf, Boxed[B, T], U8, UnitLast, Width, BoxBytes] | None,
    box: Box[B, BF16] | None,
    crew: Crew[V],
) -> Ten[Mine[V], Boxed[B, T], U8, Contiguous, N, BoxBytes]:
    """Boxes are carried, whole or in parts."""
    raise NotImplementedError


def carried_by(body: Callable[..., object]) -> Callable[..., Any]:
    def ran(boxes: Any, shelf: Any, box: Any, crew: Any) -> Any:
        return body(boxes)

    return stage(carry, mode=Mode.DEVELOPMENT)(ran)


def copied(boxes: Any) -> object:
    return Halves(*(part.clone() for part in boxes.tensors)) if isinstance(boxes, Parts) else boxes.clone()


def halves(crew: Crew[Any], *changed: Tensor, **branded: Any) -> Any:
    """Two parts of three rows: two bf16 and four bytes a row."""
    low, high = changed or (rows_of(3, 2), torch.zeros(3, 4, dtype=torch.uint8))
    marks = {"low": Plain, "high": Warm} | branded
    return Halves(mine(low, marks["low"], crew), mine(high, marks["high"], crew))


def described(tensor: Tensor) -> str | None:
    found = brand_of(tensor)
    return None if found is None else found.describe()


def test_parts_stand_for_packed_rows_and_results_in_parts_are_branded_part_by_part() -> None:
    crew, function = crew_of(), carried_by(copied)
    result = function(halves(crew), None, BOX, crew)
    assert [described(part) for part in result.tensors] == [
        "Mine[Turns], Plain, turns, from carry.carried",
        "Mine[Turns], Warm, turns, from carry.carried",
    ]
    assert (crew.log.calls, crew.log.unknown) == ({"carry": 1}, {})


def test_packed_rows_may_come_back_in_parts_and_parts_packed() -> None:
    crew = crew_of()
    packed = mine(torch.zeros(3, 8, dtype=torch.uint8), BOXED[SmallBox, Cold], crew)
    parts = carried_by(lambda boxes: Halves(rows_of(3, 2), torch.zeros(3, 4, dtype=torch.uint8)))(packed, None, BOX, crew)
    assert described(parts.tensors[1]) == "Mine[Turns], Cold, turns, from carry.carried"
    again = carried_by(lambda boxes: torch.zeros(3, 8, dtype=torch.uint8))(halves(crew), None, BOX, crew)
    assert described(again) == "Mine[Turns], Boxed[SmallBox, Warm], turns, from carry.carried"


def test_what_no_argument_says_is_not_claimed_of_parts() -> None:
    crew = crew_of()
    parts = carried_by(copied)(halves(crew), None, None, crew)
    assert described(parts.tensors[1]) == "Mine[Turns], unknown state, turns, from carry.carried"


def test_base_parts_have_each_the_state_of_the_rows() -> None:
    parts = Parts(rows_of(2, 3), torch.zeros(2, 5, dtype=torch.uint8))
    assert (parts.rows, parts.row_bytes) == (2, 11)
    assert parts.states(Warm) == (Warm, Warm)
    assert parts.brands() == (None, None)
    assert Parts(rows_of(0, 3), torch.zeros(0, 2, 2)).row_bytes == 22


def high(rows: int = 3, width: int = 4, **options: Any) -> Tensor:
    return torch.zeros(rows, width, dtype=torch.uint8, **options)


FAULTS: dict[str, tuple[Callable[[Crew[Any]], Any], str]] = {
    "parts of different rows": (
        lambda crew: halves(crew, rows_of(3, 2), high(2)),
        "DSA102: carry: boxes has parts of 3 and 2 rows",
    ),
    "rows of no kind": (
        lambda crew: halves(crew, rows_of(5, 2), high(5)),
        "DSA102: carry: boxes has 5 rows, which is neither own 3 nor seats 4",
    ),
    "other bytes a row": (
        lambda crew: halves(crew, rows_of(3, 3), high()),
        "DSA104: carry: boxes has 10 bytes a row, not 8",
    ),
    "columns apart": (
        lambda crew: halves(crew, rows_of(2, 3).T, high()),
        "DSA104: carry: boxes has last stride 3, not 1 in part 0",
    ),
    "another device": (
        lambda crew: halves(crew, rows_of(3, 2), high(device="meta")),
        "DSA105: carry: boxes has part 1 on meta, the crew on cpu",
    ),
    "a dim less": (
        lambda crew: halves(crew, rows_of(3, 2), high(1, 3)[0]),
        "DSA109: carry: boxes has a part with fewer than 2 dims",
    ),
    "no parts": (lambda crew: Halves(), "DSA101: carry: boxes is Parts, which stand for packed rows alone"),
    "another state of the first": (lambda crew: halves(crew, low=Cold), "DSA107: carry: boxes is Cold, not Plain"),
    "another scope": (lambda crew: halves(crew_of()), "DSA108: carry: boxes was made for another crew"),
    "other rows": (
        lambda crew: Halves(rows_of(), all_rows(high(), InOrder, Warm, crew)),
        "DSA106: carry: boxes holds All[InOrder] rows, not Mine[Turns]",
    ),
}


@pytest.mark.parametrize("is_remembered", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
def test_parts_are_refused(fault: str, is_remembered: bool) -> None:
    make, headline = FAULTS[fault]
    crew, function = crew_of(), carried_by(copied)
    if is_remembered:
        function(halves(crew), None, BOX, crew)
    assert refusal(function, make(crew), None, BOX, crew).splitlines()[0] == f"StageInputError {headline}"


def test_a_refusal_describes_every_part() -> None:
    crew, function = crew_of(), carried_by(copied)
    assert refusal(function, halves(crew, rows_of(7, 2), high(7)), None, BOX, crew) == (
        "StageInputError DSA102: carry: boxes has 7 rows, which is neither own 3 nor seats 4\n"
        "  expected  u8[N box_bytes] UnitLast, Mine[V], Boxed[B, T]; own=3, bound by crew (turns, runner 0 of 2)"
        "; seats=4, bound by crew (turns, runner 0 of 2)\n"
        "  got       bf16[7, 2] strides (2, 1) cpu and u8[7, 4] strides (4, 1) cpu\n"
        "  because   its brand: Mine[Turns], Plain, turns, from test\n"
        "  where     runner=0 of 2, turns\n"
        f"{contract_and_ran(function)}\n"
        "  try       pass a tensor of the bound size: a dim has one size in all calls of its scope"
    )


NEAR_MISSES: dict[str, Callable[[Crew[Any]], Any]] = {
    "rows with empty seats": lambda crew: halves(crew, rows_of(4, 2), high(4)),
    "rows apart": lambda crew: halves(crew, rows_of(3, 5)[:, :2], high(3, 9)[:, :4]),
    "other widths of as many bytes": lambda crew: halves(crew, rows_of(3, 3), high(3, 2)),
    "a part of three dims": lambda crew: halves(crew, rows_of(3, 2), high().view(3, 2, 2)),
    "three parts": lambda crew: Parts(rows_of(3, 1), rows_of(3, 1), high()),
    "no brands": lambda crew: Halves(rows_of(), high()),
    "a cold box": lambda crew: halves(crew, high=Cold),
}


@pytest.mark.parametrize("near_miss", NEAR_MISSES)
def test_parts_that_are_only_unusual_pass(near_miss: str) -> None:
    crew = crew_of()
    carried_by(copied)(NEAR_MISSES[near_miss](crew), None, BOX, crew)
    assert crew.log.calls == {"carry": 1}


def shelf(width: int = 8, state: object = Warm) -> Any:
    return declare_lasting(torch.zeros(2, width, dtype=torch.uint8), Shelf, BOXED[SmallBox, state], "shelf")


def test_parts_bind_dims_and_states_for_the_other_arguments() -> None:
    crew, function = crew_of(), carried_by(copied)
    function(halves(crew), shelf(), BOX, crew)
    text = refusal(function, halves(crew), shelf(9), BOX, crew)
    assert text.startswith("StageInputError DSA102: carry: shelf has 9 box_bytes, boxes has 8\n")
    text = refusal(function, halves(crew), shelf(8, Cold), BOX, crew)
    assert text.startswith("StageInputError DSA107: carry: shelf is Boxed[SmallBox, Cold], not Boxed[SmallBox, Warm]\n")


def test_results_in_parts_are_checked() -> None:
    def returned(parts: object) -> str:
        crew = crew_of()
        return refusal(carried_by(lambda boxes: parts), halves(crew), None, BOX, crew).splitlines()[0]

    assert returned(Halves(rows_of(2, 2), high(2))) == "StageOutputError DSA202: carry: carried has 2 rows, not 3"
    assert returned(Halves(rows_of(3, 3), high())) == "StageOutputError DSA202: carry: carried has 10 bytes a row, not 8"
    assert returned(Halves(rows_of(2, 3).T, high())) == (
        "StageOutputError DSA204: carry: carried has last stride 3, not 1 in part 0"
    )


def test_parts_do_not_stand_for_rows_that_are_not_packed() -> None:
    crew = crew_of()
    text = refusal(checked_turn(), Parts(rows_of(3, 1), rows_of(3, 1)), *args_of(crew)[1:])
    assert text.startswith("StageInputError DSA101: turn: x is Parts, which stand for packed rows alone\n")


def test_calls_with_parts_are_remembered_by_what_each_part_is() -> None:
    crew, function = crew_of(), carried_by(copied)

    def new_checks(parts: Any) -> int:
        before = crew.log.checked.get("carry", 0)
        function(parts, None, BOX, crew)
        return int(crew.log.checked.get("carry", 0) - before)

    assert new_checks(halves(crew)) > 0
    assert new_checks(halves(crew)) == 0
    assert new_checks(halves(crew, rows_of(3, 5)[:, :2], high())) > 0
    assert new_checks(halves(crew, high=Cold)) > 0
    assert new_checks(Parts(rows_of(), high())) > 0


def test_an_invariant_that_reads_one_tensor_says_nothing_of_parts() -> None:
    crew, function = crew_of(), carried_by(copied)
    ones = mine(torch.ones(3, 8, dtype=torch.uint8), BOXED[SmallBox, Warm], crew)
    assert refusal(function, ones, None, BOX, crew).startswith("StageInputError DSA104: carry: boxes starts with no zero\n")
    function(halves(crew, rows_of(), high() + 1), None, BOX, crew)


def call_with(value: object) -> Call:
    return Call("carry", {"boxes": value}, Scope(), reads_data=False)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (lambda: call_with(ABSENT).tensor("boxes"), "carry: boxes is not shown"),
        (lambda: call_with(Parts(rows_of())).tensor("boxes"), "carry: boxes is not shown as one tensor"),
        (lambda: call_with(ABSENT).width("boxes"), "carry: boxes is not shown"),
        (lambda: call_with(ABSENT).number("boxes"), "carry: boxes is not shown"),
        (lambda: call_with(ABSENT).value("boxes", Box), "carry: boxes is not shown"),
        (lambda: call_with(ABSENT).group("boxes"), "carry: boxes is not shown"),
    ],
)
def test_what_a_call_does_not_show_is_named_to_who_reads_it(read: Callable[[], object], text: str) -> None:
    with pytest.raises(NotShownError) as error:
        read()
    assert error.value.headline == text


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (lambda: call_with(2.0).tensor("boxes"), "an invariant of carry reads boxes as Tensor; it is float"),
        (lambda: call_with("2").number("boxes"), "an invariant of carry reads boxes as a number; it is <class 'str'>"),
    ],
)
def test_what_a_call_shows_as_something_else_is_the_invariants_fault(read: Callable[[], object], text: str) -> None:
    with pytest.raises(ContractDefinitionError) as error:
        read()
    assert error.value.headline == text


def test_what_a_call_shows_is_read() -> None:
    parts = Halves(rows_of(), high())
    assert (call_with(parts).width("boxes"), call_with(high()).width("boxes"), call_with(3).number("boxes")) == (8, 4, 3.0)
    assert call_with(parts).value("boxes", Halves) is parts
