"""What a stage refuses of a tensor it takes or returns: for each code the whole message, and a near miss that passes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts.core.errors import TRIES
from dsa_contracts.core.marks import Plain
from dsa_contracts.core.runtime.binding import place_of
from dsa_contracts.core.runtime.stage import unchecked_function
from tests.support.messages import refusal
from tests.support.toy import TURN, Crew, Warm, args_of, bare_turn, checked_turn, cold, crew_of, mine, rows_of, turn_with

BOUND = "own=3, bound by crew (turns, runner 0 of 2); seats=4, bound by crew (turns, runner 0 of 2); width=2, bound by turn.x"


def message(
    code: str, headline: str, got: str, *, is_output: bool = False, because: str = "", advice: str = "", ran: Any = bare_turn
) -> str:
    """The message about x, or about what is returned."""
    kind, expected = ("StageInputError", "UnitLast, Mine[V], Cold")
    if is_output:
        kind, expected = ("StageOutputError", "Contiguous, Mine[V], Warm")
    lines = [
        f"{kind} {code}: turn: {headline}",
        f"  expected  bf16[N width] {expected}; {BOUND}",
        f"  got       {got}",
        f"  because   {because}",
        "  where     runner=0 of 2, turns",
        f"  contract  {TURN}",
        f"  ran       {place_of(ran)}",
        f"  try       {advice or TRIES[code]}",
    ]
    return "\n".join(line for line in lines if line.split()[1:])


INPUTS: dict[str, tuple[object, str]] = {
    "nothing": (None, message("DSA101", "x is None", "None")),
    "no tensor": ([1], message("DSA101", "x is list", "list [1]")),
    "the rows of all ranks": (
        rows_of(7),
        message(
            "DSA102",
            "x has 7 rows, which is neither own 3 nor seats 4",
            "bf16[7, 2] strides (2, 1) cpu",
            because="7 is total, the parcels of all runners",
        ),
    ),
    "rows of no kind": (
        rows_of(5),
        message("DSA102", "x has 5 rows, which is neither own 3 nor seats 4", "bf16[5, 2] strides (2, 1) cpu"),
    ),
    "another width": (
        rows_of(3, 8),
        message("DSA102", "x has 8 width, width is 2, bound by turn.x", "bf16[3, 8] strides (8, 1) cpu"),
    ),
    "another dtype": (rows_of().float(), message("DSA103", "x is f32, not bf16", "f32[3, 2] strides (2, 1) cpu")),
    "bytes": (
        torch.zeros(3, 2, dtype=torch.uint8),
        message("DSA103", "x is u8, not bf16", "u8[3, 2] strides (2, 1) cpu"),
    ),
    "columns apart": (rows_of(2, 3).T, message("DSA104", "x has last stride 3, not 1", "bf16[3, 2] strides (1, 3) cpu")),
    "another device": (
        rows_of().to("meta"),
        message("DSA105", "x is on meta, the crew on cpu", "bf16[3, 2] strides (2, 1) meta"),
    ),
    "a dim less": (rows_of()[0], message("DSA109", "x has 1 dims, not 2", "bf16[2] strides (1,) cpu")),
    "a dim more": (rows_of()[None], message("DSA109", "x has 3 dims, not 2", "bf16[1, 3, 2] strides (6, 2, 1) cpu")),
}


@pytest.mark.parametrize("fault", INPUTS)
def test_an_argument_is_refused(fault: str) -> None:
    value, text = INPUTS[fault]
    crew, function = crew_of(), checked_turn()
    function(*args_of(crew))
    assert refusal(function, *args_of(crew, x=value)) == text


NEAR_MISSES: dict[str, Callable[[], Tensor]] = {
    "a row stride": lambda: rows_of(3, 5)[:, :2],
    "rows in reverse memory order": lambda: torch.cat([rows_of(), rows_of()], dim=1).view(6, 2)[::2],
    "a parameter": lambda: torch.nn.Parameter(rows_of()),
}


@pytest.mark.parametrize("near_miss", NEAR_MISSES)
def test_an_argument_that_is_only_unusual_passes(near_miss: str) -> None:
    with torch.no_grad():
        turned = checked_turn()(*args_of(crew_of(), x=NEAR_MISSES[near_miss]()))
    assert turned.tolist() == [[2.0, 2.0]] * 3


def test_padded_rows_pass_where_all_tensors_of_the_call_are_padded() -> None:
    crew, function = crew_of(), checked_turn()
    padded = mine(torch.zeros(4, dtype=torch.int64), Plain, crew)
    assert function(*args_of(crew, x=rows_of(4), positions=padded)).shape == (4, 2)
    text = refusal(function, *args_of(crew, x=rows_of(4)))
    assert text.startswith("StageInputError DSA102: turn: positions has 3 rows, x has 4\n")


def test_only_an_argument_that_must_be_dense_is_refused_for_a_row_stride() -> None:
    crew = crew_of()
    text = refusal(checked_turn(), *args_of(crew, positions=torch.arange(6)[::2]))
    assert text.startswith("StageInputError DSA104: turn: positions is not contiguous\n")


RAN = unchecked_function(turn_with(lambda x, *others: x))
"""The implementation whose body is given."""

OUTPUTS: dict[str, tuple[Callable[[Tensor], object], str]] = {
    "nothing": (lambda x: None, message("DSA201", "turned is None", "None", is_output=True, ran=RAN)),
    "a list": (lambda x: [1], message("DSA201", "turned is list", "list [1]", is_output=True, ran=RAN)),
    "a row less": (
        lambda x: x[:2].clone(),
        message(
            "DSA202",
            "turned has 2 rows, which is neither own 3 nor seats 4",
            "bf16[2, 2] strides (2, 1) cpu",
            is_output=True,
            ran=RAN,
        ),
    ),
    "padding rows": (
        lambda x: torch.cat([x, x[:1]]),
        message(
            "DSA202",
            "turned has 4 rows, x has 3",
            "bf16[4, 2] strides (2, 1) cpu",
            is_output=True,
            ran=RAN,
            because="4 is seats, this runner's seats",
        ),
    ),
    "another width": (
        lambda x: torch.cat([x, x], dim=1),
        message(
            "DSA202",
            "turned has 4 width, x has 2",
            "bf16[3, 4] strides (4, 1) cpu",
            is_output=True,
            ran=RAN,
        ),
    ),
    "another dtype": (
        lambda x: x.float(),
        message("DSA203", "turned is f32, not bf16", "f32[3, 2] strides (2, 1) cpu", is_output=True, ran=RAN),
    ),
    "columns apart": (
        lambda x: x.T.contiguous().T,
        message("DSA204", "turned is not contiguous", "bf16[3, 2] strides (1, 3) cpu", is_output=True, ran=RAN),
    ),
    "another device": (
        lambda x: x.to("meta"),
        message("DSA205", "turned is on meta, the crew on cpu", "bf16[3, 2] strides (2, 1) meta", is_output=True, ran=RAN),
    ),
    "a dim less": (
        lambda x: x[0].clone(),
        message("DSA209", "turned has 1 dims, not 2", "bf16[2] strides (1,) cpu", is_output=True, ran=RAN),
    ),
}


@pytest.mark.parametrize("fault", OUTPUTS)
def test_a_return_value_is_refused(fault: str) -> None:
    make, text = OUTPUTS[fault]
    crew = crew_of()
    checked_turn()(*args_of(crew))
    assert refusal(turn_with(lambda x, positions, scale, crew: make(x)), *args_of(crew)) == text


def test_what_is_refused_for_its_brand_says_what_the_brand_is() -> None:
    crew, function = crew_of(), checked_turn()
    turned = function(*args_of(crew))
    assert refusal(function, *args_of(crew, x=turned)) == message(
        "DSA107",
        "x is Warm, not Cold",
        "bf16[3, 2] strides (2, 1) cpu",
        because="its brand: Mine[Turns], Warm, turns, from turn.turned",
        advice="turn once",
    )


def test_the_same_violation_has_the_same_text_on_every_call() -> None:
    def fail(crew: Crew[Any]) -> str:
        return refusal(checked_turn(), *args_of(crew, x=mine(rows_of(), Warm, crew)))

    assert fail(crew_of()) == fail(crew_of())


def test_a_brand_tells_why_a_tensor_has_other_rows() -> None:
    crew = crew_of()
    text = refusal(checked_turn(), *args_of(crew, x=cold(rows_of(7), crew)))
    assert "  because   its brand: Mine[Turns], Cold, turns, from test\n" in text
