"""The modes: where they are read, and how a process leaves them for a while."""

from typing import Any

import pytest

from dsa_contracts.core.errors import ContractDefinitionError
from dsa_contracts.core.modes import VARIABLE, Mode, checking_values, mode_from_environment, unchecked
from dsa_contracts.core.runtime.stage import stage, unchecked_function
from tests.support.messages import refusal
from tests.support.toy import Crew, args_of, bare_turn, checked_turn, crew_of, pick, picked, rows_of, turn


@pytest.mark.parametrize(("text", "mode"), [*((mode.value, mode) for mode in Mode), ("", Mode.DEVELOPMENT)])
def test_the_environment_names_the_mode(monkeypatch: pytest.MonkeyPatch, text: str, mode: Mode) -> None:
    monkeypatch.setenv(VARIABLE, text)
    assert mode_from_environment() is mode


def test_without_the_variable_the_mode_is_development(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert mode_from_environment() is Mode.DEVELOPMENT


@pytest.mark.parametrize("text", ["off", "Production", " values", "0"])
def test_any_other_value_is_an_error(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(ContractDefinitionError) as error:
        stage(turn)
    assert str(error.value) == (
        f"ContractDefinitionError DSA003: DSA_CONTRACTS is {text!r}\n"
        "  expected  development, values, production\n"
        "  try       unset DSA_CONTRACTS"
    )


def test_the_mode_is_read_when_a_stage_is_decorated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "production")
    assert stage(turn)(bare_turn) is bare_turn
    monkeypatch.setenv(VARIABLE, "development")
    assert stage(turn)(bare_turn) is not bare_turn
    assert stage(turn, mode=Mode.PRODUCTION)(bare_turn) is bare_turn


def test_production_gives_back_the_very_same_object() -> None:
    function = unchecked_function(checked_turn())
    before = dict(vars(function))
    assert stage(turn, mode=Mode.PRODUCTION)(function) is function
    assert unchecked_function(function) is function
    assert vars(function) == before


def test_the_checked_function_stands_for_the_bare_one() -> None:
    checked, bare = checked_turn(), bare_turn
    assert unchecked_function(checked) is bare
    assert (checked.__name__, checked.__doc__, checked.__module__) == (bare.__name__, bare.__doc__, bare.__module__)


def test_unchecked_suspends_all_checks_and_counts_nothing() -> None:
    crew, function = crew_of(), checked_turn()
    wrong = args_of(crew, x=rows_of(7).float())
    with unchecked(), unchecked():
        assert function(*wrong).tolist() == [[2.0, 2.0]] * 7
    assert (crew.log.calls, crew.dims.value("width")) == ({}, None)
    assert refusal(function, *wrong).startswith("StageInputError DSA103: turn: x is f32, not bf16\n")


def test_checks_come_back_after_an_error_inside_of_unchecked() -> None:
    crew, function = crew_of(), checked_turn()
    with pytest.raises(ZeroDivisionError), unchecked():
        raise ZeroDivisionError
    assert refusal(function, *args_of(crew, x=None)).startswith("StageInputError DSA101: turn: x is None\n")


def local_positions(crew: Crew[Any]) -> object:
    flipped: Any = crew.own_rows.flip(0)
    return picked(crew.numbers, flipped, crew)


def test_values_are_read_where_they_are_asked_for_alone() -> None:
    crew = crew_of()
    local_positions(crew)
    with checking_values():
        message = refusal(local_positions, crew)
    local_positions(crew)
    assert message.startswith("StageInputError DSA106: pick: rows[0] is 5, own row 0 is 1\n")


def test_values_mode_reads_values_in_every_call() -> None:
    function = stage(pick, mode=Mode.VALUES)(unchecked_function(picked))
    crew = crew_of()
    function(crew.numbers, crew.own_rows, crew)
    counted = crew.log.checked["pick"]
    function(crew.numbers, crew.own_rows, crew)
    assert crew.log.checked["pick"] > counted
    message = refusal(function, crew.numbers, crew.own_rows.flip(0), crew)
    assert message.startswith("StageInputError DSA106: pick: rows[0] is 5, own row 0 is 1\n")
