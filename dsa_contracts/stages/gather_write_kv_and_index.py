"""Contract of `gather_write_kv_and_index`."""

from dsa_contracts.core.comm import Comm
from dsa_contracts.core.contract import contract
from dsa_contracts.core.invariant import Call, Invariant
from dsa_contracts.dsa.aliases import IndexCache, IndexRows, KvCache, KvRows, SlotMapping
from dsa_contracts.dsa.batch import CpBatch
from dsa_contracts.dsa.dims import NnzGathered
from dsa_contracts.dsa.invariants import (
    comm_is_the_batch_group,
    gathered_in_rank_order,
    page_size_is_the_batch_page_size,
    row_width_matches_format,
    slots_are_legal,
    slots_are_on_their_pages,
)
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.states import Local, RankMajor, Rotated
from dsa_contracts.dsa.typevars import FI, ND, NDI, RD, RDI, F, L, N


def _index_width_matches_format(rows: str) -> Invariant:
    """The indexer's rows are as wide as their row format says."""

    def check(call: Call) -> str | None:
        row_format = call.shown("index_format")
        if not isinstance(row_format, RowFormat):
            return "index_format is no row format"
        width, want = call.tensor(rows).shape[-1], row_format.row_bytes
        return None if width == want else f"{rows} is {width} bytes wide, a row of {row_format.name} has {want}"

    return Invariant(
        "index_width_matches_format", "DSA110", rows, f"{rows} rows are index_format.row_bytes wide", False, check
    )


@contract(
    requires=(
        row_width_matches_format("kv"),
        row_width_matches_format("pool"),
        _index_width_matches_format("index_kv"),
        _index_width_matches_format("index_pool"),
        page_size_is_the_batch_page_size("pool"),
        page_size_is_the_batch_page_size("index_pool"),
        comm_is_the_batch_group(),
        slots_are_legal(),
        slots_are_on_their_pages(),
    ),
    ensures=(gathered_in_rank_order(),),
    advice=(
        ("DSA106", "kv and index_kv must be this rank's rows, and loc the slots of all ranks' rows: batch.rank_major_loc"),
        ("DSA107", "apply RoPE to both keys before the gather: they are stored rotated"),
        ("DSA110", "a pool holds rows of one format: KV rows in the one, the indexer's rows in the other"),
        ("DSA113", "take cp_size and cp_rank from the CP group once, and carry them"),
        ("DSA116", "take slots from the batch; -1 stands for padding and is never an index"),
    ),
    flow=(("kv", "pool"), ("index_kv", "index_pool")),
    sources=(("loc", ("batch.rank_major_loc",)),),
)
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
    """Each new token's KV row and indexer row stand in the same slot of every rank's two pools, after one collective.

    Args:
        pool: this rank's KV pool of the layer.
        index_pool: this rank's pool of the indexer's rows of the layer; slots as in `pool`.
        kv: this rank's packed KV rows, as bytes.
        index_kv: this rank's packed indexer rows; the two may be column slices of one packed row.
        loc: slot of each row of all ranks, rank after rank, `nnz_padded` entries a rank, the same on every rank; negative:
            not written.
        row_format: the format of the KV rows.
        index_format: the format of the indexer's rows.
        batch: the batch.
        comm: its context-parallel group.

    Row order: `kv` and `index_kv` in local order, `loc` rank-major. Aliasing: both pools are written in place. Sync: one
    collective; ranks without a token take part. On a GPU the pools are complete on the stream, not on the host.

    Raises:
        StageInputError: DSA101 to DSA110, DSA113, DSA114, DSA116, DSA125.
        StageOutputError: DSA122.
        RankError: DSA501, DSA502, DSA503.

    Source: vllm-project/vllm-ascend#12867 packs latent, indexer key and its scale into one byte all-gather.
    """
