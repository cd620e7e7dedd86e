"""`Parts`: several tensors that stand where a contract names one of packed rows; and what is not given to a check at all."""

from dataclasses import replace
from enum import Enum

import torch
from torch import Tensor

from dsa_contracts.core.brands import Brand, Kind, brand_of, make_brand
from dsa_contracts.core.scope import Scope
from dsa_contracts.core.views import set_brand


class Absent(Enum):
    """What stands for an argument, or a return value, that an observed call does not show."""

    ABSENT = "absent"


ABSENT = Absent.ABSENT


class Marked:
    """Base of plain values that say what the type parameters of their annotation are, as a row format does.

    They are compared by `==`, hash, and have a `name` for messages.
    """

    name: str

    @property
    def type_marks(self) -> tuple[object, ...]:
        """The marks, in the order of the type parameters."""
        raise NotImplementedError


class Parts:
    """Rows that are held as several tensors, part by part, where a contract names them packed into one.

    A contract's `Packed[...]` rows of bytes fit when every part has as many rows, and the bytes of all parts of a row are
    those of a packed row. A vocabulary derives its own and says in which state each part is.

    Attributes:
        tensors: the parts, in the order of their bytes.
    """

    def __init__(self, *tensors: Tensor) -> None:
        """Keep the parts."""
        self.tensors = tensors

    def states(self, state: object) -> tuple[object, ...]:
        """Return the state of each part of rows whose packed state this is, or may be by a pattern; here one for all."""
        return (state,) * len(self.tensors)

    @property
    def rows(self) -> int:
        """Rows of the first part."""
        return self.tensors[0].shape[0]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row over all parts."""
        return sum(part[:1].numel() * part.element_size() if part.shape[0] else _width(part) for part in self.tensors)

    def packed(self) -> Tensor:
        """Return the rows as one tensor of bytes, in new memory."""
        return torch.cat([part.contiguous().view(torch.uint8).flatten(1) for part in self.tensors], dim=1)

    def brands(self) -> tuple[Brand | None, ...]:
        """Return the brand of each part."""
        return tuple(brand_of(part) for part in self.tensors)

    def kinds(self, kind: Kind) -> tuple[Kind, ...]:
        """Return the kind of each part of rows of this kind."""
        states = (None,) * len(self.tensors) if kind.state is None else self.states(kind.state)
        return tuple(replace(kind, state=state) for state in states)

    def set_brands(self, kind: Kind, scope: Scope) -> None:
        """Brand every part as what rows of this kind are in it."""
        for part, own in zip(self.tensors, self.kinds(kind), strict=True):
            set_brand(part, make_brand(own, scope.token, scope.layer))


def _width(part: Tensor) -> int:
    """Return the bytes of a row of a part without rows."""
    return torch.Size(part.shape[1:]).numel() * part.element_size()
