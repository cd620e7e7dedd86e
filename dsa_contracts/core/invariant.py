"""Named invariants: facts about a call that neither a shape nor a brand can say.

An invariant has a name that is a fact, a code, and a function of the call that returns what is wrong, or None. Those that
read device data (`reads_data`) run in `values` mode only; the others are functions of metadata and host numbers, so that
a call that passed once need not be looked at again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from torch import Tensor

from dsa_contracts.core.comm import Comm
from dsa_contracts.core.errors import ContractDefinitionError, NotShownError, know_code
from dsa_contracts.core.parts import ABSENT, Parts
from dsa_contracts.core.scope import Scope

Value = TypeVar("Value")


@dataclass(frozen=True)
class Call:
    """The arguments of one call by name, and its return values by name once it has returned.

    Attributes:
        stage: the stage.
        values: arguments and return values.
        scope: the scope that the call belongs to.
        reads_data: whether the invariants that look at it now may read device data.
    """

    stage: str
    values: dict[str, object]
    scope: Scope
    reads_data: bool = True

    def shown(self, name: str) -> object:
        """Return an argument or return value; raises NotShownError where a watched call does not show it."""
        value = self.values[name]
        if value is ABSENT:
            raise NotShownError(f"{self.stage}: {name} is not shown")
        return value

    def tensor(self, name: str) -> Tensor:
        """Return a tensor argument or return value; rows that are held part by part are packed where data is read."""
        value = self.shown(name)
        if not isinstance(value, Parts):
            return self.value(name, Tensor)
        if not self.reads_data or any(part.dim() > 2 for part in value.tensors):
            raise NotShownError(f"{self.stage}: {name} is not shown as one tensor")
        return value.packed()

    def width(self, name: str) -> int:
        """Return the last dim of a tensor; of rows that are held part by part, their bytes."""
        value = self.shown(name)
        return value.row_bytes if isinstance(value, Parts) else int(self.tensor(name).shape[-1])

    def number(self, name: str) -> float:
        """Return a scalar argument."""
        value = self.shown(name)
        if not isinstance(value, int | float):
            raise ContractDefinitionError(f"an invariant of {self.stage} reads {name} as a number; it is {type(value)}")
        return float(value)

    def group(self, name: str) -> Comm:
        """Return the group of a collective."""
        value = self.shown(name)
        if not isinstance(value, Comm):
            raise NotShownError(f"{self.stage}: {name} is not shown as a group that moves bytes")
        return value

    def value(self, name: str, kind: type[Value]) -> Value:
        """Return an argument or return value of a known kind; raises ContractDefinitionError DSA001 for another kind."""
        value = self.shown(name)
        if not isinstance(value, kind):
            raise ContractDefinitionError(
                f"an invariant of {self.stage} reads {name} as {kind.__name__}; it is {type(value).__name__}"
            )
        return value


@dataclass(frozen=True)
class Invariant:
    """A named fact about a call.

    Attributes:
        name: the fact, as in `numbers_match_rows`.
        code: the code of the error that its violation raises.
        subject: the parameter or return value that it is about.
        statement: the fact in a sentence, for tables and for the `expected` line of the error.
        reads_data: whether it reads device data.
        check: returns what is wrong in a call, None where nothing is.
        shows_rows: whether what it reads tells the right rows from others of the same shape, so that no brand need say it.
        reads_offset: whether it reads where in its memory the subject starts; a remembered call then goes by that too.
    """

    name: str
    code: str
    subject: str
    statement: str
    reads_data: bool
    check: Callable[[Call], str | None] = field(repr=False, compare=False)
    reads_offset: bool = False
    shows_rows: bool = False

    def __post_init__(self) -> None:
        """Raise ContractDefinitionError DSA001 for a code that nothing explains, now and not when it fires."""
        know_code(self.code)


def differing_row(got: Tensor, want: Tensor) -> int | None:
    """Return the first row in which two tensors of one shape differ, None where they are equal."""
    fault = (got != want).flatten(1).any(dim=1)
    return first(fault) if bool(fault.any()) else None


def first(fault: Tensor) -> int:
    """Return the index of the first true element."""
    return int(fault.nonzero()[0, 0])
