"""Lines of error messages that many tests expect."""

from collections.abc import Callable
from typing import Any

import pytest

from dsa_contracts.core.contract import contract_of
from dsa_contracts.core.errors import ContractError
from dsa_contracts.core.runtime.binding import place_of
from dsa_contracts.core.runtime.stage import unchecked_function


def contract_and_ran(function: Callable[..., object]) -> str:
    """Return the two lines that name the contract of a stage and the implementation that ran."""
    return f"  contract  {contract_of(function).location}\n  ran       {place_of(unchecked_function(function))}"


def refusal(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """Return the whole message that a call is refused with."""
    with pytest.raises(ContractError) as error:
        function(*args, **kwargs)
    return str(error.value)
