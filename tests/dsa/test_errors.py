"""The errors and codes that the vocabulary adds."""

import pytest

from dsa_contracts.core.errors import CODES, TRIES, ContractError
from dsa_contracts.dsa.codes import DSA_CODES, DSA_TRIES, BatchError, PlanError, TraceError


@pytest.mark.parametrize(("kind", "code"), [(BatchError, "DSA301"), (PlanError, "DSA401"), (TraceError, "DSA601")])
def test_an_error_is_a_contract_error_alone_and_has_the_code_of_its_kind(kind: type[ContractError], code: str) -> None:
    assert kind.__mro__[1:] == (ContractError, Exception, BaseException, object)
    assert str(kind("what happened")) == f"{kind.__name__} {code}: what happened"


def test_codes_and_their_advice_are_in_the_tables_of_the_core_in_rising_order() -> None:
    assert CODES.items() >= DSA_CODES.items()
    assert TRIES.items() >= DSA_TRIES.items()
    assert list(CODES) == sorted(CODES)
