"""Every stage is bound to the stub of its name, and production leaves its function alone."""

import pytest

from dsa_contracts import Comm, Mode, all_contracts, contract_of, stage, unchecked_function
from dsa_contracts import stages as contracts
from dsa_cp import stages

STAGES = contracts.__all__


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


def test_every_stub_of_the_package_is_a_contract_with_an_implementation_of_the_same_name() -> None:
    assert contracts.__all__ == stages.__all__
    for name in contracts.__all__:
        found = contract_of(getattr(contracts, name))
        assert found in all_contracts()
        assert found is contract_of(getattr(stages, name))
        assert found.location.startswith(f"dsa_contracts/stages/{name}.py:")
        assert (found.comm_param is not None) == any(record.hint is Comm for record in found.params)
