"""What an invariant is, and the call that it looks at."""

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from dsa_contracts.batch import CpBatch
from dsa_contracts.errors import ContractDefinitionError
from dsa_contracts.formats import RowFormat
from dsa_contracts.layout import Layout


@dataclass(frozen=True)
class Call:
    """The arguments of one call by name, and its return values by name once it has returned."""

    stage: str
    values: dict[str, object]

    def tensor(self, name: str) -> Tensor:
        """Return a tensor argument or return value."""
        value = self.values[name]
        if not isinstance(value, Tensor):
            raise ContractDefinitionError(f"an invariant of {self.stage} reads {name} as a tensor; it is {type(value)}")
        return value

    def number(self, name: str) -> float:
        """Return a scalar argument."""
        value = self.values[name]
        if not isinstance(value, int | float):
            raise ContractDefinitionError(f"an invariant of {self.stage} reads {name} as a number; it is {type(value)}")
        return float(value)

    @property
    def batch(self) -> CpBatch[Layout]:
        """The batch of the call."""
        value = self.values["batch"]
        if not isinstance(value, CpBatch):
            raise ContractDefinitionError(f"{self.stage} got no batch")
        return value

    @property
    def row_format(self) -> RowFormat[object, object, object]:  # type: ignore[type-var]
        """The row format of the call."""
        value = self.values["row_format"]
        if not isinstance(value, RowFormat):
            raise ContractDefinitionError(f"{self.stage} got no row format")
        return value


@dataclass(frozen=True)
class Invariant:
    """A named fact about a call.

    Attributes:
        name: the fact, as in `positions_match_rows`.
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


def differing_row(got: Tensor, want: Tensor) -> int | None:
    """Return the first row in which two tensors of one shape differ, None where they are equal."""
    fault = (got != want).flatten(1).any(dim=1)
    return first(fault) if bool(fault.any()) else None


def used_pages(table: Tensor, batch: CpBatch[Layout]) -> list[Tensor]:
    """Return for each request the pages of a table that its keys lie on; what stands behind them is free."""
    return [table[request, : -(-seq_len // batch.page_size)] for request, seq_len in enumerate(batch.seq_lens)]


def first(fault: Tensor) -> int:
    """Return the index of the first true element."""
    return int(fault.nonzero()[0, 0])
