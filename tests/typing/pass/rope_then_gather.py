"""The first legal order: RoPE on this rank's rows with this rank's positions, then the gather."""

from dsa_contracts import Comm, CpBatch, RopeStyle
from dsa_contracts.dsa.aliases import CosSinCache, KNope, KRope, KvCache, SlotMapping
from dsa_contracts.dsa.dims import NnzGathered, NnzLocal
from dsa_contracts.dsa.row_formats import bf16_format
from dsa_contracts.dsa.states import Bf16Row, Local, RankMajor, Raw
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import all_gather_kv, apply_rope, pack_kv, rebuild_positions, write_kv


def layer(
    k_nope: KNope[Local[Zigzag], NnzLocal],
    k_rope: KRope[Local[Zigzag], Raw, NnzLocal],
    cos_sin_cache: CosSinCache,
    pool: KvCache[Bf16Row],
    loc: SlotMapping[RankMajor[Zigzag], NnzGathered],
    batch: CpBatch[Zigzag],
    comm: Comm,
) -> None:
    positions = rebuild_positions(batch.positions, batch.local_rows, batch)
    rotated = apply_rope(k_rope, positions, cos_sin_cache, 64, RopeStyle.NEOX, batch)
    kv = pack_kv(k_nope, rotated, bf16_format(), batch)
    gathered = all_gather_kv(kv, bf16_format(), batch, comm)
    write_kv(pool, gathered, loc, bf16_format(), batch)
