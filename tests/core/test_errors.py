"""The error tree, its codes and its one renderer."""

import pickle
import re
from typing import Any

import pytest

from dsa_contracts.core.errors import (
    CODES,
    TRIES,
    ArgumentError,
    ContractDefinitionError,
    ContractError,
    NotShownError,
    RankError,
    StageInputError,
    StageOutputError,
    add_codes,
    look_for_codes_in,
)

KINDS = {
    ContractDefinitionError: "DSA001",
    StageInputError: "DSA101",
    StageOutputError: "DSA201",
    RankError: "DSA501",
    NotShownError: "DSA602",
    ArgumentError: "DSA602",
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_error_is_one_that_engines_catch_around_their_kernels(kind: type[ContractError]) -> None:
    assert kind.__mro__[1:] == (ContractError, Exception, BaseException, object)


def test_every_kind_of_error_is_listed_here() -> None:
    own = {kind for kind in ContractError.__subclasses__() if kind.__module__.startswith("dsa_contracts.core.")}
    assert own == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_without_a_code_has_that_of_its_kind(kind: type[ContractError]) -> None:
    assert str(kind("what happened")) == f"{kind.__name__} {KINDS[kind]}: what happened"


def test_one_fact_a_line_and_none_without_a_text() -> None:
    facts = [("expected", "u8[4]"), ("got", ""), ("because", "a reason"), ("a longer label", "text")]
    error = StageInputError("write_kv: kv has 3 rows", code="DSA102", facts=facts)
    assert str(error) == (
        "StageInputError DSA102: write_kv: kv has 3 rows\n  expected  u8[4]\n  because   a reason\n  a longer label text"
    )
    assert error.facts == (("expected", "u8[4]"), ("because", "a reason"), ("a longer label", "text"))


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_survives_pickling_whole(kind: type[ContractError]) -> None:
    error = kind("what happened", code="DSA502", facts=[("rank 0", "came")])
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (again.headline, again.code, again.facts) == ("what happened", "DSA502", (("rank 0", "came"),))
    assert str(again) == str(error)


def test_a_code_that_is_not_listed_cannot_be_raised() -> None:
    with pytest.raises(ContractDefinitionError, match=r"'DSA999' is no known code"):
        StageInputError("what happened", code="DSA999")


def test_codes_are_three_digits_in_rising_order_and_each_says_one_thing() -> None:
    assert all(re.fullmatch(r"[A-Z]{2,}\d{3}", code) for code in CODES)
    assert list(CODES) == sorted(CODES)
    assert len(set(CODES.values())) == len(CODES)
    assert all(text.isascii() and text[0].islower() and not text.endswith(".") for text in CODES.values())


def test_every_code_has_advice_in_one_sentence() -> None:
    assert TRIES.keys() == CODES.keys()
    assert all(text and text.isascii() and text[0].islower() and not text.endswith(".") for text in TRIES.values())


@pytest.fixture
def own_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes that a test adds are gone after it."""
    monkeypatch.setattr("dsa_contracts.core.errors.CODES", dict(CODES))
    monkeypatch.setattr("dsa_contracts.core.errors.TRIES", dict(TRIES))


@pytest.mark.usefixtures("own_tables")
def test_a_vocabulary_adds_codes_in_its_own_letters() -> None:
    with pytest.raises(ContractDefinitionError, match="'RELAY101' is no known code"):
        StageInputError("the baton fell", code="RELAY101")
    add_codes({"RELAY101": "a baton fell"}, {"RELAY101": "pick it up"})
    add_codes({"RELAY101": "a baton fell"}, {"RELAY101": "pick it up"})
    assert str(StageInputError("the baton fell", code="RELAY101")) == "StageInputError RELAY101: the baton fell"
    assert "RELAY101" not in CODES


@pytest.mark.usefixtures("own_tables")
def test_a_source_of_codes_is_asked_only_for_one_that_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def source() -> None:
        asked.append("asked")
        add_codes({"RELAY102": "a lane was left"}, {"RELAY102": "stay in it"})

    monkeypatch.setattr("dsa_contracts.core.errors._SOURCES", [])
    look_for_codes_in(source)
    StageInputError("an argument", code="DSA101")
    assert asked == []
    assert StageInputError("the lane was left", code="RELAY102").code == "RELAY102"
    StageInputError("the lane was left", code="RELAY102")
    assert asked == ["asked"]


@pytest.mark.usefixtures("own_tables")
@pytest.mark.parametrize(
    ("codes", "tries", "message"),
    [
        ({"R101": "x"}, {"R101": "y"}, "'R101' is no code; a code is capital letters and three digits, as in RING101"),
        ({"RING1": "x"}, {"RING1": "y"}, "'RING1' is no code; a code is capital letters and three digits, as in RING101"),
        ({"DSA101": "x"}, {"DSA101": "y"}, "DSA101 stands for 'an argument has the wrong type, or is missing' already"),
        ({"RING101": "x"}, {}, "codes and advice do not name the same: RING101"),
        ({}, {"RING101": "y"}, "codes and advice do not name the same: RING101"),
    ],
)
def test_a_code_of_another_form_or_meaning_or_without_advice_is_refused(codes: Any, tries: Any, message: str) -> None:
    with pytest.raises(ContractDefinitionError) as error:
        add_codes(codes, tries)
    assert str(error.value) == f"ContractDefinitionError DSA001: {message}"


def test_a_fact_is_added_behind_another_once() -> None:
    error = StageInputError("what", facts=[("contract", "a.py:1"), ("try", "again")])
    error.add_fact("ran", "f, b.py:2", after="contract")
    error.add_fact("ran", "g, c.py:3", after="contract")
    error.add_fact("because", "", after="contract")
    error.add_fact("because", "of it", after="where")
    assert str(error) == "StageInputError DSA101: what\n  contract  a.py:1\n  ran       f, b.py:2\n  try       again"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
