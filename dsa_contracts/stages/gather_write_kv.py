"""Contract of `gather_write_kv`."""

from dsa_contracts.core.comm import Comm
from dsa_contracts.core.contract import contract
from dsa_contracts.dsa.aliases import KvCache, KvRows, SlotMapping
from dsa_contracts.dsa.batch import CpBatch
from dsa_contracts.dsa.dims import NnzGathered
from dsa_contracts.dsa.invariants import (
    comm_is_the_batch_group,
    gathered_in_rank_order,
    page_size_is_the_batch_page_size,
    row_width_matches_format,
    scales_in_rows_are_positive,
    slots_are_legal,
    slots_are_on_their_pages,
)
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.states import Local, RankMajor, Rotated
from dsa_contracts.dsa.typevars import ND, RD, F, L, N


@contract(
    requires=(
        row_width_matches_format("kv"),
        row_width_matches_format("pool"),
        page_size_is_the_batch_page_size("pool"),
        comm_is_the_batch_group(),
        slots_are_legal(),
        slots_are_on_their_pages(),
        scales_in_rows_are_positive("kv"),
    ),
    ensures=(gathered_in_rank_order(),),
    advice=(
        ("DSA103", "send bytes: kv.view(torch.uint8), not .to(torch.uint8), which changes the values"),
        ("DSA106", "kv must be this rank's rows, and loc the slots of all ranks' rows: batch.rank_major_loc"),
        ("DSA107", "apply RoPE before the gather: keys are stored rotated"),
        ("DSA110", "a pool holds rows of one format; allocate it for the format that is written"),
        ("DSA113", "take cp_size and cp_rank from the CP group once, and carry them"),
        ("DSA116", "take slots from the batch; -1 stands for padding and is never an index"),
    ),
    flow=(("kv", "pool"),),
    sources=(("loc", ("batch.rank_major_loc",)),),
)
def gather_write_kv(
    pool: KvCache[F],
    kv: KvRows[Local[L], F, Rotated, N],
    loc: SlotMapping[RankMajor[L], NnzGathered],
    row_format: RowFormat[F, ND, RD],
    batch: CpBatch[L],
    comm: Comm,
) -> None:
    """Each new token's packed row, from whichever rank, stands in its slot of every rank's pool; other slots are unchanged.

    What `all_gather_kv` and `write_kv` with rank-major slots do together: a kernel need not put the gathered rows anywhere.

    Args:
        pool: this rank's pool of the layer, `[num_pages, page_size, row_bytes]` bytes.
        kv: this rank's packed rows, as bytes; with or without padding rows.
        loc: slot of each row of all ranks, rank after rank, `nnz_padded` entries a rank, the same on every rank; what
            `batch.slot_skip` says is not written.
        row_format: the format of the rows and of the pool.
        batch: the batch.
        comm: its context-parallel group.

    Row order: `kv` in local order, `loc` rank-major. Aliasing: `pool` is written in place. Sync: collective; ranks without a
    token take part. On a GPU the pool is complete on the stream, not on the host.

    Raises:
        StageInputError: DSA101 to DSA110, DSA112 to DSA114, DSA116, DSA125.
        StageOutputError: DSA122.
        RankError: DSA501, DSA502, DSA503.

    Source: none upstream; sglang 0.5.23 gathers, restores the order and writes in three passes, vLLM 0.33 in two.
    """
