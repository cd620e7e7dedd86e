"""Reference of `write_kv`: a masked scatter; the slot that the batch skips, and a negative one, are never an index."""

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, stage
from dsa_contracts.dsa.aliases import KvCache, KvRows, SlotMapping
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.slots import is_written
from dsa_contracts.dsa.states import Global, Rotated
from dsa_contracts.dsa.typevars import ND, RD, F, G, L, O


@stage(contracts.write_kv)
def write_kv(
    pool: KvCache[F],
    kv: KvRows[Global[O], F, Rotated, G],
    loc: SlotMapping[O, G],
    row_format: RowFormat[F, ND, RD],
    batch: CpBatch[L],
) -> None:
    """See `dsa_contracts.stages.write_kv`."""
    slots = pool.view(-1, pool.shape[-1])
    written = is_written(loc, batch.slot_skip)
    slots[loc[written]] = kv[written]
