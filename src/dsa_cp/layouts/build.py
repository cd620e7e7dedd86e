"""Batches from lengths: `build_batches` for all ranks of a group, `build_batch` for one.

Only row counts are computed here. Index tensors are made when somebody first reads them, on the CPU once, and each is moved
to the device once. The ranks' batches share the memory of what is the same on all ranks, and of the tensors that the caller
gave, but no tensor object: a brand is an attribute of the object and names one batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple

import torch
from torch import Tensor

from dsa_contracts.core.brands import brand
from dsa_contracts.dsa.batch import CpBatch
from dsa_contracts.dsa.checks import (
    check_group,
    check_options,
    check_pages,
    check_slots,
    checked_batch_lens,
    decode_flags,
    device_of,
)
from dsa_contracts.dsa.index_source import IndexSource
from dsa_contracts.dsa.indices import padded_rows
from dsa_contracts.dsa.slots import SKIP_NEGATIVE, BatchSlots, SlotOrder
from dsa_contracts.dsa.typevars import L


def build_batches(
    layout: L,
    cp_size: int,
    extend_lens: Sequence[int],
    prefix_lens: Sequence[int] | None = None,
    *,
    padded_lens: Sequence[int] | None = None,
    row_alignment: int = 1,
    out_cache_loc: Tensor | None = None,
    page_table: Tensor | None = None,
    page_size: int = 64,
    device: torch.device | str | None = None,
    plan: str = "",
    seq_lens: Sequence[int] | None = None,
    decodes: Sequence[bool] = (),
) -> tuple[CpBatch[L], ...]:
    """Return the batch as each rank sees it, in rank order.

    Args:
        layout: which rank holds which tokens.
        cp_size: ranks; may be more than there are tokens.
        extend_lens: new tokens of each request; 0 for one that is not worked on.
        prefix_lens: cached tokens of each request; None for none.
        padded_lens: new tokens with the engine's padding at the end of a request; None for none. The layout cuts these.
        row_alignment: `nnz_padded` is a multiple of it.
        out_cache_loc: int64 [nnz], slot of each new token in sequence order.
        page_table: int32 [num_requests, max_pages].
        page_size: slots of a page.
        device: of the index tensors; None for that of `out_cache_loc`, else of `page_table`, else the CPU.
        plan: name of the plan that the path follows.
        seq_lens: keys of each request; where given they must be prefix + extend exactly, which shows a clamped prefix.
        decodes: whether each request is a decode, which some layouts put elsewhere; empty where none is.

    Raises:
        BatchError: DSA301 (lengths, slots, pages), DSA302 (cp_size), DSA303 (rows lost or doubled; a tensor's strides).
        ArgumentError: DSA602 (layout, row_alignment, page_size, device, plan).
    """
    pool = _Pool(out_cache_loc, page_table, page_size)
    shared = _share(
        layout, cp_size, (extend_lens, prefix_lens, padded_lens, seq_lens), row_alignment, pool, device, plan, decodes
    )
    return tuple(shared.batch(rank) for rank in range(cp_size))


def build_batch(
    layout: L,
    cp_size: int,
    cp_rank: int,
    extend_lens: Sequence[int],
    prefix_lens: Sequence[int] | None = None,
    *,
    padded_lens: Sequence[int] | None = None,
    row_alignment: int = 1,
    out_cache_loc: Tensor | None = None,
    page_table: Tensor | None = None,
    page_size: int = 64,
    device: torch.device | str | None = None,
    plan: str = "",
    seq_lens: Sequence[int] | None = None,
    decodes: Sequence[bool] = (),
) -> CpBatch[L]:
    """Return the batch as rank `cp_rank` sees it; arguments and errors are those of `build_batches`."""
    check_group(cp_size, cp_rank)
    pool = _Pool(out_cache_loc, page_table, page_size)
    shared = _share(
        layout, cp_size, (extend_lens, prefix_lens, padded_lens, seq_lens), row_alignment, pool, device, plan, decodes
    )
    return shared.batch(cp_rank)


class _Pool(NamedTuple):
    """What a batch knows of the KV pool."""

    out_cache_loc: Tensor | None
    page_table: Tensor | None
    page_size: int


@dataclass(frozen=True)
class _Shared(Generic[L]):
    """What every rank's batch has in common."""

    layout: L
    source: IndexSource
    slots: BatchSlots | None
    page_table: Tensor | None
    page_size: int
    plan: str

    def batch(self, rank: int) -> CpBatch[L]:
        """Return one rank's batch; its index tensors are made when they are read."""
        extend_lens, prefix_lens, padded_lens = self.source.lens
        return CpBatch(
            layout=self.layout,
            cp_size=self.source.cp_size,
            cp_rank=rank,
            extend_lens=extend_lens,
            prefix_lens=prefix_lens,
            padded_lens=padded_lens,
            rank_lens=self.source.rows.real,
            nnz_padded=self.source.nnz_padded,
            source=self.source,
            out_cache_loc=None if self.slots is None else brand(self.slots.given),
            page_table=None if self.page_table is None else brand(self.page_table),
            page_size=self.page_size,
            plan=self.plan,
            slots=self.slots,
        )


def _share(
    layout: L,
    cp_size: int,
    given_lens: tuple[Sequence[int], Sequence[int] | None, Sequence[int] | None, Sequence[int] | None],
    row_alignment: int,
    pool: _Pool,
    device: torch.device | str | None,
    plan: str,
    decodes: Sequence[bool],
) -> _Shared[L]:
    """Check all arguments and count what the ranks hold."""
    check_group(cp_size)
    check_options(layout, row_alignment, pool.page_size, plan)
    lens = checked_batch_lens(*given_lens)
    extend_lens, prefix_lens, _ = lens
    check_slots(pool.out_cache_loc, sum(extend_lens))
    seq_lens = [prefix + extend for prefix, extend in zip(prefix_lens, extend_lens, strict=True)]
    check_pages(pool.page_table, seq_lens, pool.page_size)
    target = device_of(device, pool.out_cache_loc, pool.page_table)
    flags = decode_flags(decodes, len(extend_lens))
    source = IndexSource(layout, cp_size, lens, target, lambda fullest: padded_rows(fullest, row_alignment), flags)
    slots = None
    if pool.out_cache_loc is not None:
        slots = BatchSlots(pool.out_cache_loc.detach().to(target), SlotOrder.SEQUENCE, SKIP_NEGATIVE)
    table = None if pool.page_table is None else pool.page_table.detach().to(target)
    return _Shared(layout, source, slots, table, pool.page_size, plan)
