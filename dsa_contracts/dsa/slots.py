"""Slots of new tokens: which slot values are written, whose they are, and the same slots in each order of rows.

A writer passes over some slot values. vLLM's kernels return for a negative slot. sglang's skip slot 0 and nothing else: to
them -1 is an address in front of the pool. A batch therefore says which value its writer skips.
"""

import threading
from enum import Enum
from typing import Protocol

import torch
from torch import Tensor

SKIP_NEGATIVE = -1
"""The skip value of a writer that passes over every negative slot."""


class OrderedRows(Protocol):
    """What slots read of a batch to put themselves in another order."""

    @property
    def restore_index(self) -> Tensor:
        """Where each row stands in the gathered rows."""

    @property
    def engine_rows(self) -> Tensor:
        """Row at each place of what the engine carries."""

    @property
    def nnz(self) -> int:
        """Rows."""

    @property
    def nnz_gathered(self) -> int:
        """Gathered rows."""

    @property
    def nnz_engine(self) -> int:
        """Rows that the engine carries."""


class SlotOrder(Enum):
    """The order of rows that slots were given in."""

    SEQUENCE = "sequence"
    ENGINE = "engine"
    RANK_MAJOR = "rank-major"


def is_written(loc: Tensor, skip: int) -> Tensor:
    """Return bool, like `loc`: whether a writer with this skip value writes the slot. A negative one is never written."""
    return loc >= 0 if skip < 0 else (loc >= 0) & (loc != skip)


def with_negatives_for_skipped(loc: Tensor, skip: int) -> Tensor:
    """Return slots for a kernel that passes over negative ones: `loc` itself where those are what the batch skips."""
    return loc if skip < 0 else torch.where(loc == skip, SKIP_NEGATIVE, loc)


class BatchSlots:
    """The slots of a batch in each order that somebody reads them in; made once, for all ranks of the batch.

    Attributes:
        given: int64, as the caller gave them.
        order: the order of `given`.
        skip: the slot value that is not written; below 0: all negative ones.
    """

    def __init__(self, given: Tensor, order: SlotOrder, skip: int) -> None:
        """Keep the slots as given."""
        self.given, self.order, self.skip = given, order, skip
        self._made: dict[SlotOrder, Tensor] = {order: given}
        self._lock = threading.RLock()

    def __getstate__(self) -> dict[str, object]:
        """What a copy takes along; a lock is no part of it."""
        return {"given": self.given, "order": self.order, "skip": self.skip}

    def __setstate__(self, state: dict[str, object]) -> None:
        """Start from what was given."""
        self.__init__(**state)  # type: ignore[misc]

    def ordered(self, order: SlotOrder, batch: OrderedRows) -> Tensor:
        """Return the slots in an order of the batch's rows; the skip value stands where no row is written."""
        with self._lock:
            if order not in self._made:
                self._made[order] = self._reordered(order, batch)
            return self._made[order]

    def _reordered(self, order: SlotOrder, batch: OrderedRows) -> Tensor:
        if order is SlotOrder.SEQUENCE:
            at = batch.restore_index if self.order is SlotOrder.RANK_MAJOR else place_of_rows(batch.engine_rows, batch.nnz)
            return self.given[at]
        slots = self.ordered(SlotOrder.SEQUENCE, batch)
        is_gathered = order is SlotOrder.RANK_MAJOR
        size = batch.nnz_gathered if is_gathered else batch.nnz_engine
        at = batch.restore_index if is_gathered else place_of_rows(batch.engine_rows, batch.nnz)
        return slots.new_full((size,), self.skip).index_copy_(0, at, slots)


def place_of_rows(rows: Tensor, nnz: int) -> Tensor:
    """Return the first place of each row 0 .. nnz-1 in `rows`, which may hold -1 for padding and copies of a row."""
    real = (rows >= 0).nonzero().flatten()
    place = rows.new_full((nnz,), len(rows))
    return place.scatter_reduce_(0, rows[real], real, "amin")
