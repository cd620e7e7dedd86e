"""Reference of `gather_write_kv_and_index`: both rows side by side through one gather, then a write into each pool."""

import torch

import dsa_contracts.stages as contracts
from dsa_contracts import Comm, CpBatch, stage
from dsa_contracts.dsa.aliases import IndexCache, IndexRows, KvCache, KvRows, SlotMapping
from dsa_contracts.dsa.dims import NnzGathered
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.slots import is_written
from dsa_contracts.dsa.states import Local, RankMajor, Rotated
from dsa_contracts.dsa.typevars import FI, ND, NDI, RD, RDI, F, L, N


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
    rows = torch.cat([kv, index_kv], dim=-1)
    padded = rows.new_zeros(batch.nnz_padded, rows.shape[1])
    padded[batch.padded_index] = rows if rows.shape[0] == batch.nnz_local else rows[batch.padded_index]
    gathered = comm.all_gather(padded)
    written = is_written(loc, batch.slot_skip)
    slots, both = loc[written], gathered[written]
    pool.view(-1, pool.shape[-1])[slots] = both[:, : kv.shape[1]]
    index_pool.view(-1, index_pool.shape[-1])[slots] = both[:, kv.shape[1] :]
