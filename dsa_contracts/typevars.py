"""The type variables of the contracts. One letter means the same in every stub."""

from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

from dsa_contracts.dims import Nnz, NnzGathered, NnzLocal, NnzPadded, NumSlots
from dsa_contracts.layout import Layout

if TYPE_CHECKING:
    from dsa_contracts import states

__all__ = ["AD", "FI", "ND", "NDI", "QD", "RD", "RDI", "C", "Ds", "F", "G", "K", "L", "M", "N", "O", "P", "R", "S"]

L = TypeVar("L", bound=Layout)
"""The layout of the batch."""

N = TypeVar("N", NnzLocal, NnzPadded)
"""Rows of this rank: without padding rows, or with them. One value in a call."""

M = TypeVar("M", Nnz, NnzLocal, NnzPadded, NnzGathered)
"""Rows of the batch, of any kind. One value in a call."""

K = TypeVar("K", Nnz, NnzLocal, NnzPadded, NnzGathered, NumSlots)
"""Rows of the batch, or rows that were read from a pool, of any number. One value in a call."""

G = TypeVar("G", Nnz, NnzGathered)
"""Rows of all ranks: in sequence order, or as gathered with padding. One value in a call."""

C = TypeVar("C", bound="states.UnitLast")
"""The strides that the consumer takes."""

O = TypeVar("O", bound="states.Order")  # noqa: E741 - the letter of "order"
"""The order of global rows. One value in a call."""

R = TypeVar("R", bound="states.Rows")
"""Rows of any kind, in any order. One value in a call."""

S = TypeVar("S", bound="states.State")
"""Any state; what comes in goes out."""

P = TypeVar("P", bound="states.RopeState")
"""Raw or Rotated."""

F = TypeVar("F", bound="states.FormatMark")
"""The row format. One value in a call."""

FI = TypeVar("FI", bound="states.FormatMark")
"""The row format of the indexer's rows, where KV rows stand beside them in one call."""

NDI = TypeVar("NDI", bound="states.DType")
"""The dtype of the key part of the indexer's row format."""

RDI = TypeVar("RDI", bound="states.DType")
"""The dtype of the last part of the indexer's row format."""

ND = TypeVar("ND", bound="states.DType")
"""The dtype of the latent part of a row format."""

RD = TypeVar("RD", bound="states.DType")
"""The dtype of the rope part of a row format."""

QD = TypeVar("QD", bound="states.DType")
"""The dtype of the merged query."""

AD = TypeVar("AD", bound="states.DType")
"""The dtype of the attention output."""

Ds = TypeVarTuple("Ds")
"""Any trailing dims; the same in and out."""
