"""The "Raises" section of each contract against its parameters and invariants, and each code against the stage's tests."""

import re
from pathlib import Path
from typing import TypeVar, get_origin

import pytest

import dsa_contracts.stages as contracts
from dsa_contracts import CODES, StageContract, contract_of
from dsa_contracts.dsa.states import Global, Local

OF_EVERY_TENSOR = {f"DSA10{number}" for number in range(1, 10)}
ARE_TESTED_FOR_EVERY_STAGE = OF_EVERY_TENSOR | {"DSA125"}
"""In `test_every_stage`."""
every_stage = pytest.mark.parametrize("name", contracts.__all__)


def record_of(name: str) -> StageContract:
    return contract_of(getattr(contracts, name))


def listed(name: str, error: str) -> set[str]:
    """The codes that a stub's docstring lists for an error; `DSA102 to DSA104` are three."""
    doc = getattr(contracts, name).__doc__ or ""
    found = re.search(rf"\n {{8}}{error}: ([^\n]*(?:\n {{12}}[^\n]*)*)\.\n", doc)
    text = found[1] if found else ""
    codes = set(re.findall(r"DSA\d{3}", text))
    for first, last in re.findall(r"DSA(\d{3}) to DSA(\d{3})", text):
        codes |= {f"DSA{number}" for number in range(int(first), int(last) + 1)}
    return codes


def input_codes(contract: StageContract) -> set[str]:
    """What a stage's parameters and invariants can raise before the call."""
    codes = OF_EVERY_TENSOR | {invariant.code for invariant in contract.requires}
    specs = {param.name: param.spec for param in contract.params if param.spec is not None}
    if all(isinstance(spec.state, TypeVar) for spec in specs.values()):
        codes -= {"DSA107"}
    read = {invariant.subject for invariant in contract.requires if invariant.shows_rows}
    told = [spec for name, spec in specs.items() if name not in read]
    if any(isinstance(spec.rows, TypeVar) or get_origin(spec.rows) in (Local, Global) for spec in told):
        codes |= {"DSA125"}
    return codes


@every_stage
def test_listed_codes_are_those_that_can_be_raised(name: str) -> None:
    contract = record_of(name)
    assert listed(name, "StageInputError") == input_codes(contract)
    assert listed(name, "StageOutputError") == {invariant.code for invariant in contract.ensures}
    assert listed(name, "RankError") == ({"DSA501", "DSA502", "DSA503"} if contract.comm_param else set())


@every_stage
def test_each_code_of_a_stage_is_raised_in_its_tests(name: str) -> None:
    texts = [path.read_text() for path in Path(__file__).parent.glob(f"test_{name}*.py")]
    codes = {code for error in ("StageInputError", "StageOutputError", "RankError") for code in listed(name, error)}
    missing = {code for code in codes - ARE_TESTED_FOR_EVERY_STAGE if all(code not in text for text in texts)}
    assert missing == set()
    assert codes <= set(CODES)
