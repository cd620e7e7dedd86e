"""The type variables of the contracts. One letter means the same in every stub."""

from typing import TypeVar, TypeVarTuple

from dsa_contracts.core.marks import DType, Rows, State, UnitLast
from dsa_contracts.dsa.dims import Nnz, NnzEngine, NnzGathered, NnzLocal, NnzPadded, NnzShard, NumSlots
from dsa_contracts.dsa.states import F, FormatMark, L, O, P

__all__ = ["AD", "FI", "ND", "NDI", "QD", "RD", "RDI", "C", "Ds", "F", "G", "K", "L", "M", "N", "O", "P", "R", "S"]

N = TypeVar("N", NnzLocal, NnzPadded, NnzShard)
"""Rows of this rank: without padding rows, with those of the collective, or with those of an engine. One value in a call."""

M = TypeVar("M", Nnz, NnzLocal, NnzPadded, NnzGathered, NnzShard, NnzEngine)
"""Rows of the batch, of any kind. One value in a call."""

K = TypeVar("K", Nnz, NnzLocal, NnzPadded, NnzGathered, NumSlots, NnzShard, NnzEngine)
"""Rows of the batch, or rows that were read from a pool, of any number. One value in a call."""

G = TypeVar("G", Nnz, NnzGathered, NnzEngine)
"""Rows of all ranks: in sequence order, as gathered with padding, or as an engine carries them. One value in a call."""

C = TypeVar("C", bound=UnitLast)
"""The strides that the consumer takes."""

R = TypeVar("R", bound=Rows)
"""Rows of any kind, in any order. One value in a call."""

S = TypeVar("S", bound=State)
"""Any state; what comes in goes out."""

FI = TypeVar("FI", bound=FormatMark)
"""The row format of the indexer's rows, where KV rows stand beside them in one call."""

NDI = TypeVar("NDI", bound=DType)
"""The dtype of the key part of the indexer's row format."""

RDI = TypeVar("RDI", bound=DType)
"""The dtype of the last part of the indexer's row format."""

ND = TypeVar("ND", bound=DType)
"""The dtype of the latent part of a row format."""

RD = TypeVar("RD", bound=DType)
"""The dtype of the rope part of a row format."""

QD = TypeVar("QD", bound=DType)
"""The dtype of the merged query."""

AD = TypeVar("AD", bound=DType)
"""The dtype of the attention output."""

Ds = TypeVarTuple("Ds")
"""Any trailing dims; the same in and out."""
