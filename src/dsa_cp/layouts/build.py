"""Batches from lengths: `build_batches` for all ranks of a group, `build_batch` for one.

Index tensors are computed once, on the CPU, and each is moved to the device once. The ranks' batches share the memory
of what is the same on all ranks, and of the tensors that the caller gave, but no tensor object: a brand is an attribute
of the object and names one batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple

import torch
from torch import Tensor

from dsa_contracts.core.brands import T, brand
from dsa_contracts.dsa.batch import CpBatch
from dsa_contracts.dsa.codes import BatchError
from dsa_contracts.dsa.typevars import L
from dsa_cp.layouts.checks import check_group, check_options, check_pages, check_slots, checked_batch_lens, device_of
from dsa_cp.layouts.indices import BatchLens, RankMajorRows, rank_major_rows, row_facts
from dsa_cp.layouts.tables import decode_flags


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
        extend_lens: new tokens of each request, at least 1.
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


class _SharedTensors(NamedTuple):
    """The index tensors that are the same on all ranks, on the device; see `CpBatch` for each."""

    positions: Tensor
    causal_lens: Tensor
    request_of_row: Tensor
    gathered_rows: Tensor
    restore_index: Tensor
    out_cache_loc: Tensor | None
    rank_major_loc: Tensor | None
    page_table: Tensor | None


@dataclass(frozen=True)
class _Shared(Generic[L]):
    """What every rank's batch has in common; `gathered` and `request` on the CPU."""

    layout: L
    cp_size: int
    lens: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    gathered: RankMajorRows
    request: Tensor
    tensors: _SharedTensors
    page_size: int
    plan: str

    def batch(self, rank: int) -> CpBatch[L]:
        """Return one rank's batch, in which every tensor is an object of its own."""
        extend_lens, prefix_lens, padded_lens = self.lens
        shared = self.tensors
        device = shared.positions.device
        padded_rows = self.gathered.rows.view(self.cp_size, -1)[rank]
        padded_index = (padded_rows >= 0).nonzero().squeeze(1)
        local_rows = padded_rows[padded_index]
        return CpBatch(
            layout=self.layout,
            cp_size=self.cp_size,
            cp_rank=rank,
            extend_lens=extend_lens,
            prefix_lens=prefix_lens,
            padded_lens=padded_lens,
            rank_lens=self.gathered.rank_lens,
            nnz_padded=self.gathered.nnz_padded,
            positions=_own(shared.positions),
            causal_lens=_own(shared.causal_lens),
            request_of_row=_own(shared.request_of_row),
            local_rows=_own(local_rows.to(device)),
            padded_rows=_own(padded_rows.to(device)),
            padded_index=_own(padded_index.to(device)),
            local_request_of_row=_own(self.request[local_rows].int().to(device)),
            gathered_rows=_own(shared.gathered_rows),
            restore_index=_own(shared.restore_index),
            out_cache_loc=None if shared.out_cache_loc is None else _own(shared.out_cache_loc),
            rank_major_loc=None if shared.rank_major_loc is None else _own(shared.rank_major_loc),
            page_table=None if shared.page_table is None else _own(shared.page_table),
            page_size=self.page_size,
            plan=self.plan,
        )


def _own(tensor: Tensor) -> T:  # type: ignore[type-var]
    """Return a new tensor object on the same memory, which can carry a brand of its own."""
    return brand(tensor.detach())


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
    """Check all arguments and compute what the ranks share."""
    check_group(cp_size)
    check_options(layout, row_alignment, pool.page_size, plan)
    lens = checked_batch_lens(*given_lens)
    extend_lens, prefix_lens, padded_lens = lens
    check_slots(pool.out_cache_loc, sum(extend_lens))
    seq_lens = [prefix + extend for prefix, extend in zip(prefix_lens, extend_lens, strict=True)]
    check_pages(pool.page_table, seq_lens, pool.page_size)
    target = device_of(device, pool.out_cache_loc, pool.page_table)
    tables = layout.segment_tables_with_decodes(padded_lens, cp_size, decode_flags(decodes, len(padded_lens)))
    if len(tables) != cp_size:
        raise BatchError(f"{layout.name} gives {len(tables)} segment tables for cp_size {cp_size}", code="DSA303")
    batch_lens = BatchLens(torch.tensor(extend_lens), torch.tensor(prefix_lens), torch.tensor(padded_lens))
    gathered = rank_major_rows(tables, batch_lens, row_alignment, layout.name)
    request, position, causal_len = row_facts(batch_lens)
    there = gathered.restore_index.to(target)
    slots = None if pool.out_cache_loc is None else pool.out_cache_loc.to(target)
    tensors = _SharedTensors(
        position.to(target),
        causal_len.int().to(target),
        request.int().to(target),
        gathered.rows.to(target),
        there,
        slots,
        None if slots is None else slots.new_full(gathered.rows.shape, -1).index_copy_(0, there, slots),
        None if pool.page_table is None else pool.page_table.to(target),
    )
    return _Shared(layout, cp_size, lens, gathered, request, tensors, pool.page_size, plan)
