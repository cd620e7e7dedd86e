"""Keys are stored rotated; raw ones are packed, gathered and written."""

from dsa_contracts import Comm, CpBatch
from dsa_contracts.dsa.aliases import KNope, KRope, KvCache, SlotMapping
from dsa_contracts.dsa.dims import NnzGathered, NnzLocal
from dsa_contracts.dsa.row_formats import bf16_format
from dsa_contracts.dsa.states import Bf16Row, Local, RankMajor, Raw
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import all_gather_kv, pack_kv, write_kv


def layer(
    k_nope: KNope[Local[Zigzag], NnzLocal],
    k_rope: KRope[Local[Zigzag], Raw, NnzLocal],
    pool: KvCache[Bf16Row],
    loc: SlotMapping[RankMajor[Zigzag], NnzGathered],
    batch: CpBatch[Zigzag],
    comm: Comm,
) -> None:
    kv = pack_kv(k_nope, k_rope, bf16_format(), batch)
    gathered = all_gather_kv(kv, bf16_format(), batch, comm)
    write_kv(pool, gathered, loc, bf16_format(), batch)  # refused
