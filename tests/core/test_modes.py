"""The modes: where they are read, and how a process leaves them for a while."""

from typing import Any

import pytest

from dsa_contracts import CpBatch, Mode, checking_values, stage, unchecked, unchecked_function
from dsa_contracts import stages as contracts
from dsa_contracts.core.contract import StageContract, contract_of
from dsa_contracts.core.errors import ContractDefinitionError
from dsa_contracts.core.modes import VARIABLE, mode_from_environment
from dsa_cp import stages
from tests.core.toys import args_of, bare_turn, batch_of, checked_turn, refusal, rows_of, turn

STAGES = contracts.__all__


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


def record_of(name: str) -> StageContract:
    return contract_of(getattr(contracts, name))


@pytest.mark.parametrize("name", STAGES)
def test_production_gives_back_the_very_same_object(name: str) -> None:
    stub = getattr(contracts, name)
    function = unchecked_function(getattr(stages, name))
    before = dict(vars(function))
    assert stage(stub, mode=Mode.PRODUCTION)(function) is function
    assert unchecked_function(function) is function
    assert vars(function) == before


@pytest.mark.parametrize("name", STAGES)
def test_the_checked_function_stands_for_the_bare_one(name: str) -> None:
    checked = getattr(stages, name)
    bare = unchecked_function(checked)
    assert bare is not checked
    assert (checked.__name__, checked.__doc__, checked.__module__) == (bare.__name__, bare.__doc__, bare.__module__)


def test_unchecked_suspends_all_checks_and_counts_nothing() -> None:
    batch, function = batch_of(), checked_turn()
    wrong = args_of(batch, x=rows_of(7).float())
    with unchecked(), unchecked():
        assert function(*wrong).tolist() == [[2.0, 2.0]] * 7
    assert (batch.log.calls, batch.dims.value("kv_lora_rank")) == ({}, None)
    assert refusal(function, *wrong).startswith("StageInputError DSA103: turn: x is f32, not bf16\n")


def test_checks_come_back_after_an_error_inside_of_unchecked() -> None:
    batch, function = batch_of(), checked_turn()
    with pytest.raises(ZeroDivisionError), unchecked():
        raise ZeroDivisionError
    assert refusal(function, *args_of(batch, x=None)).startswith("StageInputError DSA101: turn: x is None\n")


def local_positions(batch: CpBatch[Any]) -> object:
    flipped: Any = batch.local_rows.flip(0)
    return stages.rebuild_positions(batch.positions, flipped, batch)


def test_values_are_read_where_they_are_asked_for_alone() -> None:
    batch = batch_of()
    local_positions(batch)
    with checking_values():
        message = refusal(local_positions, batch)
    local_positions(batch)
    assert message.startswith("StageInputError DSA119: rebuild_positions: rows[0] is 6, local row 0 of this rank is 0\n")


def test_values_mode_reads_values_in_every_call() -> None:
    function = stage(contracts.rebuild_positions, mode=Mode.VALUES)(unchecked_function(stages.rebuild_positions))
    batch = batch_of()
    function(batch.positions, batch.local_rows, batch)
    counted = batch.log.checked["rebuild_positions"]
    function(batch.positions, batch.local_rows, batch)
    assert batch.log.checked["rebuild_positions"] > counted
    message = refusal(function, batch.positions, batch.local_rows.flip(0), batch)
    assert message.startswith("StageInputError DSA119: rebuild_positions: rows[0] is 6, local row 0 of this rank is 0\n")
