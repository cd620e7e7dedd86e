"""What the tests of the examples share."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts.core.errors import ContractError


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def refusal(function: Callable[..., Any], *args: Any) -> str:
    """The whole message that a call is refused with; places without their lines."""
    with pytest.raises(ContractError) as error:
        function(*args)
    cause = error.value.__cause__
    text = str(cause if isinstance(cause, ContractError) else error.value)
    return "\n".join(
        line.rpartition(":")[0] if line.startswith(("  contract", "  ran")) else line for line in text.splitlines()
    )
