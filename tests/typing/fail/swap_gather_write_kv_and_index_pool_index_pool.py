"""The KV cache and the indexer's cache, swapped: both are pages of bytes."""

from dsa_contracts import Comm, CpBatch
from dsa_contracts.dsa.aliases import IndexCache, IndexRows, KvCache, KvRows, SlotMapping
from dsa_contracts.dsa.dims import NnzGathered, NnzLocal
from dsa_contracts.dsa.row_formats import bf16_format, index_bf16_format
from dsa_contracts.dsa.states import Bf16Row, IndexBf16Row, Local, RankMajor, Rotated
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import gather_write_kv_and_index


def layer(
    pool: KvCache[Bf16Row],
    index_pool: IndexCache[IndexBf16Row],
    kv: KvRows[Local[Zigzag], Bf16Row, Rotated, NnzLocal],
    index_kv: IndexRows[Local[Zigzag], IndexBf16Row, Rotated, NnzLocal],
    loc: SlotMapping[RankMajor[Zigzag], NnzGathered],
    comm: Comm,
    batch: CpBatch[Zigzag],
) -> None:
    gather_write_kv_and_index(pool, index_pool, kv, index_kv, loc, bf16_format(), index_bf16_format(), batch, comm)
    gather_write_kv_and_index(index_pool, pool, kv, index_kv, loc, bf16_format(), index_bf16_format(), batch, comm)  # refused
