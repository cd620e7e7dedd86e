"""The three modes, read from `DSA_CONTRACTS` when a stage is decorated."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

import torch

from dsa_contracts.core.errors import ContractDefinitionError

VARIABLE = "DSA_CONTRACTS"


class Mode(Enum):
    """How much of a contract is checked at run time.

    `development` reads metadata and brands only, `values` also reads device data, `production` leaves nothing of a
    contract: a decorated function is the function itself.
    """

    DEVELOPMENT = "development"
    VALUES = "values"
    PRODUCTION = "production"


def mode_from_environment() -> Mode:
    """Return the mode that `DSA_CONTRACTS` names; unset or empty is development.

    Raises:
        ContractDefinitionError: DSA003, any other value.
    """
    text = os.environ.get(VARIABLE, "") or Mode.DEVELOPMENT.value
    try:
        return Mode(text)
    except ValueError:
        allowed = ", ".join(mode.value for mode in Mode)
        raise ContractDefinitionError(
            f"{VARIABLE} is {text!r}", code="DSA003", facts=[("expected", allowed), ("try", f"unset {VARIABLE}")]
        ) from None


class Switch:
    """Process-wide state of `unchecked` and `checking_values`; ranks simulated in threads share it.

    Attributes:
        unchecked_depth: above 0 where checks are suspended.
        values_depth: above 0 where stages in development mode also read device data.
    """

    unchecked_depth = 0
    values_depth = 0


def can_read_values() -> bool:
    """Whether device data may be read now: not while a stream captures a graph, nor while a compiler traces."""
    is_capturing = torch.version.cuda is not None and torch.cuda.is_current_stream_capturing()
    return not (is_capturing or torch.compiler.is_compiling())


@contextmanager
def unchecked() -> Iterator[None]:
    """Suspend all checks of this process, for comparison with the checked run. In production nothing is left to suspend."""
    Switch.unchecked_depth += 1
    try:
        yield
    finally:
        Switch.unchecked_depth -= 1


@contextmanager
def checking_values() -> Iterator[None]:
    """Let stages in development mode also run the checks of values mode."""
    Switch.values_depth += 1
    try:
        yield
    finally:
        Switch.values_depth -= 1
