"""What an engine knows of its batch, checked and put as `CpBatch` takes it."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from dsa_contracts.dsa.checks import (
    check_group,
    check_options,
    check_pages,
    check_slots,
    checked_batch_lens,
    decode_flags,
    device_of,
)
from dsa_contracts.dsa.codes import BatchError
from dsa_contracts.dsa.index_source import IndexSource
from dsa_contracts.dsa.layout import Layout
from dsa_contracts.dsa.slots import BatchSlots, SlotOrder


class RowCounts(NamedTuple):
    """Row counts of an engine's tensors; None: as in a batch without an engine's padding.

    sglang 0.5.23 pads a zigzag shard to a multiple of `2 * cp_size` rows and sends only those of the fullest rank: four
    tokens on two ranks are `RowCounts(shard=4, collective=2)`.

    Attributes:
        shard: rows of this rank's tensors; None: those of the collective.
        collective: rows of every rank in the collective; None: those of the fullest rank.
        engine: rows of all ranks as the engine carries them; None: the tokens of the batch.
    """

    shard: int | None = None
    collective: int | None = None
    engine: int | None = None


NO_COUNTS = RowCounts()


class EngineFacts(NamedTuple):
    """What `CpBatch` is made of: the source of its index tensors, and its page table on their device."""

    source: IndexSource
    page_table: Tensor | None


def engine_facts(
    layout: Layout,
    group: tuple[int, int],
    given_lens: tuple[Sequence[int], Sequence[int] | None, Sequence[int] | None],
    rows: RowCounts,
    loc: Tensor | None,
    page_table: Tensor | None,
    page_size: int,
    device: torch.device | str | None,
    plan: str,
    decodes: Sequence[bool],
) -> EngineFacts:
    """Check what `CpBatch.from_engine` got; arguments and errors are those described there."""
    check_group(*group)
    check_options(layout, 1, page_size, plan)
    extend, prefix, padded = given_lens
    if padded is None and rows.engine is not None and len(extend) > 0:
        padded = (*extend[:-1], extend[-1] + max(rows.engine - sum(extend), 0))
    lens = checked_batch_lens(extend, prefix, padded)
    check_pages(page_table, [old + new for new, old in zip(*lens[:2], strict=True)], page_size)
    target = device_of(device, loc, page_table)

    def rows_of_collective(fullest: int) -> int:
        if rows.collective is not None and rows.collective < fullest:
            message = f"the collective has {rows.collective} rows a rank, the fullest rank holds {fullest} with its padding"
            raise BatchError(message, code="DSA303")
        return fullest if rows.collective is None else rows.collective

    source = IndexSource(layout, group[0], lens, target, rows_of_collective, decode_flags(decodes, len(extend)))
    return EngineFacts(source, None if page_table is None else page_table.to(target))


def engine_slots(loc: Tensor, order: SlotOrder, sizes: dict[SlotOrder, int], skip: int) -> BatchSlots:
    """Return an engine's slots, one for each row of an order.

    Args:
        loc: int64 slots.
        order: of which rows they are. Sequence order takes in the rows that an engine carries with its padding.
        sizes: how many rows each order has.
        skip: the slot that is not written.

    Raises:
        BatchError: DSA301, they are no int64 vector, or of another number.
    """
    if order is SlotOrder.SEQUENCE:
        check_slots(loc, sizes[order], sizes[SlotOrder.ENGINE])
        if len(loc) != sizes[order]:
            order = SlotOrder.ENGINE
    check_slots(loc, sizes[order], sizes[order])
    return BatchSlots(loc, order, skip)
