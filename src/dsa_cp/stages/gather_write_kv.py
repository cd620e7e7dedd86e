"""Reference of `gather_write_kv`: the gather, then the write, each as its own stage does it."""

import dsa_contracts.stages as contracts
from dsa_contracts import Comm, CpBatch, stage, unchecked_function
from dsa_contracts.dsa.aliases import KvCache, KvRows, SlotMapping
from dsa_contracts.dsa.dims import NnzGathered
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.states import Local, RankMajor, Rotated
from dsa_contracts.dsa.typevars import ND, RD, F, L, N
from dsa_cp.stages.all_gather_kv import all_gather_kv
from dsa_cp.stages.write_kv import write_kv


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
    gathered = unchecked_function(all_gather_kv)(kv, row_format, batch, comm)
    unchecked_function(write_kv)(pool, gathered, loc, row_format, batch)
