"""The error tree, its codes and its one renderer."""

import pickle
import re

import pytest

from dsa_contracts import CODES, ContractError
from dsa_contracts.core.errors import (
    ArgumentError,
    ContractDefinitionError,
    NotShownError,
    RankError,
    StageInputError,
    StageOutputError,
)
from dsa_contracts.dsa.codes import BatchError, PlanError, TraceError

KINDS = {
    ContractDefinitionError: "DSA001",
    StageInputError: "DSA101",
    StageOutputError: "DSA201",
    BatchError: "DSA301",
    PlanError: "DSA401",
    RankError: "DSA501",
    TraceError: "DSA601",
    NotShownError: "DSA602",
    ArgumentError: "DSA602",
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_error_is_one_that_engines_catch_around_their_kernels(kind: type[ContractError]) -> None:
    assert kind.__mro__[1:] == (ContractError, Exception, BaseException, object)


def test_every_kind_of_error_is_listed_here() -> None:
    assert set(ContractError.__subclasses__()) == set(KINDS)


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
