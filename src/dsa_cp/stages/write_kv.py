"""Reference of `write_kv`: a masked scatter; the slot that the batch skips, and a negative one, are never an index."""

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, Ten, stage
from dsa_contracts.core.marks import I64, U8, Contiguous, Plain, UnitLast
from dsa_contracts.dsa.dims import NumPages, PageSize, RowBytes
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.slots import is_written
from dsa_contracts.dsa.states import Global, Packed, Pool, Rotated
from dsa_contracts.dsa.typevars import ND, RD, F, G, L, O


@stage(contracts.write_kv)
def write_kv(
    pool: Ten[Pool, Packed[F, Rotated], U8, Contiguous, NumPages, PageSize, RowBytes],
    kv: Ten[Global[O], Packed[F, Rotated], U8, UnitLast, G, RowBytes],
    loc: Ten[Global[O], Plain, I64, Contiguous, G],
    row_format: RowFormat[F, ND, RD],
    batch: CpBatch[L],
) -> None:
    """See `dsa_contracts.stages.write_kv`."""
    slots = pool.view(-1, pool.shape[-1])
    written = is_written(loc, batch.slot_skip)
    slots[loc[written]] = kv[written]
