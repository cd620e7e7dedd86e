"""Reference of `gather_write_kv`: the gather, then the write, each as its own stage does it."""

import dsa_contracts.stages as contracts
from dsa_contracts import Comm, CpBatch, Ten, stage, unchecked_function
from dsa_contracts.core.marks import I64, U8, Contiguous, Plain, UnitLast
from dsa_contracts.dsa.dims import NnzGathered, NumPages, PageSize, RowBytes
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.states import Global, Local, Packed, Pool, RankMajor, Rotated
from dsa_contracts.dsa.typevars import ND, RD, F, L, N
from dsa_cp.stages.all_gather_kv import all_gather_kv
from dsa_cp.stages.write_kv import write_kv


@stage(contracts.gather_write_kv)
def gather_write_kv(
    pool: Ten[Pool, Packed[F, Rotated], U8, Contiguous, NumPages, PageSize, RowBytes],
    kv: Ten[Local[L], Packed[F, Rotated], U8, UnitLast, N, RowBytes],
    loc: Ten[Global[RankMajor[L]], Plain, I64, Contiguous, NnzGathered],
    row_format: RowFormat[F, ND, RD],
    batch: CpBatch[L],
    comm: Comm,
) -> None:
    """See `dsa_contracts.stages.gather_write_kv`."""
    gathered = unchecked_function(all_gather_kv)(kv, row_format, batch, comm)
    unchecked_function(write_kv)(pool, gathered, loc, row_format, batch)
