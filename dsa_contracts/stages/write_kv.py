"""Contract of `write_kv`."""

from dsa_contracts.core.contract import contract
from dsa_contracts.dsa.aliases import KvCache, KvRows, SlotMapping
from dsa_contracts.dsa.batch import CpBatch
from dsa_contracts.dsa.invariants import (
    page_size_is_the_batch_page_size,
    row_width_matches_format,
    rows_stand_in_their_slots,
    scales_in_rows_are_positive,
    slots_are_legal,
    slots_are_on_their_pages,
)
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.states import Global, Rotated
from dsa_contracts.dsa.typevars import ND, RD, F, G, L, O


@contract(
    requires=(
        row_width_matches_format("kv"),
        row_width_matches_format("pool"),
        page_size_is_the_batch_page_size("pool"),
        slots_are_legal(),
        slots_are_on_their_pages(),
        scales_in_rows_are_positive("kv"),
    ),
    ensures=(rows_stand_in_their_slots(),),
    advice=(
        ("DSA102", "pass one slot a row: batch.out_cache_loc for rows in sequence order, rank_major_loc as gathered"),
        ("DSA106", "rows and slots must be in the same order: rank-major rows go with batch.rank_major_loc"),
        ("DSA107", "apply RoPE before the write: keys are stored rotated"),
        ("DSA110", "a pool holds rows of one format; allocate it for the format that is written"),
        ("DSA116", "take slots from the batch; -1 stands for padding and is never an index"),
    ),
    flow=(("kv", "pool"),),
    sources=(("loc", ("batch.out_cache_loc", "batch.rank_major_loc", "batch.engine_loc")),),
)
def write_kv(
    pool: KvCache[F],
    kv: KvRows[Global[O], F, Rotated, G],
    loc: SlotMapping[O, G],
    row_format: RowFormat[F, ND, RD],
    batch: CpBatch[L],
) -> None:
    """Each new token's packed row stands in its slot of the pool; all other slots are unchanged.

    Args:
        pool: the layer's pool, `[num_pages, page_size, row_bytes]` bytes.
        kv: packed rows of all ranks; any row stride, so that a column slice of wider rows will do.
        loc: slot of each row of `kv`, in the same order; what `batch.slot_skip` says is not written.
        row_format: the format of the rows and of the pool.
        batch: the batch.

    Row order: any, the same in `kv` and `loc`. Aliasing: `pool` is written in place. Sync: none in kernels;
    the reference waits for the device to count the rows that have a slot.

    Raises:
        StageInputError: DSA101 to DSA110, DSA112, DSA114, DSA116, DSA125.
        StageOutputError: DSA116.

    Source: sglang 0.5.23 `set_mla_kv_buffer`, which takes halves and drops writes to slot 0; here slot 0 is a slot.
    """
