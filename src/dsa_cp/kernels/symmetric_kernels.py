"""`gather_write_kv` and `gather_write_kv_and_index` in one kernel, for a `SymmetricComm`."""

from torch import Tensor

import dsa_contracts.stages as contracts
from dsa_contracts import Comm, CpBatch, stage
from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.dsa.aliases import IndexCache, IndexRows, KvCache, KvRows, SlotMapping
from dsa_contracts.dsa.dims import NnzGathered
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.slots import with_negatives_for_skipped
from dsa_contracts.dsa.states import Local, RankMajor, Rotated
from dsa_contracts.dsa.typevars import FI, ND, NDI, RD, RDI, F, L, N
from dsa_cp.comm.symmetric import Part, SymmetricComm


@stage(contracts.gather_write_kv)
def gather_write_kv(
    pool: KvCache[F],
    kv: KvRows[Local[L], F, Rotated, N],
    loc: SlotMapping[RankMajor[L], NnzGathered],
    row_format: RowFormat[F, ND, RD],
    batch: CpBatch[L],
    comm: Comm,
) -> None:
    """See `dsa_contracts.stages.gather_write_kv`."""
    _move((Part(pool, kv),), loc, batch, comm)


@stage(contracts.gather_write_kv_and_index)
def gather_write_kv_and_index(
    pool: KvCache[F],
    index_pool: IndexCache[FI],
    kv: KvRows[Local[L], F, Rotated, N],
    index_kv: IndexRows[Local[L], FI, Rotated, N],
    loc: SlotMapping[RankMajor[L], NnzGathered],
    row_format: RowFormat[F, ND, RD],
    index_format: RowFormat[FI, NDI, RDI],
    batch: CpBatch[L],
    comm: Comm,
) -> None:
    """See `dsa_contracts.stages.gather_write_kv_and_index`."""
    _move((Part(pool, kv), Part(index_pool, index_kv)), loc, batch, comm)


def _move(parts: tuple[Part, ...], loc: Tensor, batch: CpBatch[L], comm: Comm) -> None:
    """Push where all pools are symmetric, which they are on every rank or on none; pull otherwise."""
    if not isinstance(comm, SymmetricComm):
        raise ArgumentError(f"comm is a {type(comm).__name__}; this gather_write_kv needs a SymmetricComm")
    loc = with_negatives_for_skipped(loc, batch.slot_skip)
    # An engine's shard may have padding rows behind those of the collective.
    held = (Part(pool, rows[: batch.nnz_padded]) for pool, rows in parts)
    parts = tuple(Part(pool, rows if rows.is_contiguous() else rows.contiguous()) for pool, rows in held)
    rows, padded = parts[0].rows.shape[0], batch.nnz_padded
    start = batch.cp_rank * padded
    stand_first = rows == padded or batch.padded_lens == batch.extend_lens
    if comm.can_push(*(pool for pool, _ in parts)):
        if stand_first:
            comm.push(parts, loc, start, padded)
        else:
            comm.push(parts, loc[start : start + padded][batch.padded_index], 0, padded)
    elif stand_first:
        comm.pull(parts, loc, padded)
    else:
        places = comm.staged_rows(padded, *(part.shape[1] for _, part in parts))
        for place, (_, part) in zip(places, parts, strict=True):
            place.index_copy_(0, batch.padded_index, part)
        comm.pull([Part(pool, place) for (pool, _), place in zip(parts, places, strict=True)], loc, padded)
