"""The second legal order: the gather of raw rows, then RoPE with the positions of all ranks, for any layout."""

from dsa_contracts import Comm, CpBatch, RopeStyle
from dsa_contracts.dsa.aliases import CosSinCache, KNope, KRope, KvCache, SlotMapping
from dsa_contracts.dsa.dims import Nnz, NnzLocal
from dsa_contracts.dsa.row_formats import bf16_format
from dsa_contracts.dsa.states import Bf16Row, Local, PackedRowStride, Raw, Sequence
from dsa_contracts.dsa.typevars import L
from dsa_cp.stages import all_gather_kv, apply_rope, pack_kv, restore_order, split_kv, write_kv


def layer(
    k_nope: KNope[Local[L], NnzLocal],
    k_rope: KRope[Local[L], Raw, NnzLocal],
    cos_sin_cache: CosSinCache,
    pool: KvCache[Bf16Row],
    loc: SlotMapping[Sequence, Nnz],
    batch: CpBatch[L],
    comm: Comm,
) -> None:
    raw = pack_kv(k_nope, k_rope, bf16_format(), batch)
    restored = restore_order(all_gather_kv(raw, bf16_format(), batch, comm), batch)
    latent, rope = split_kv(restored, bf16_format(), PackedRowStride, batch)
    rotated = apply_rope(rope, batch.positions, cos_sin_cache, 64, RopeStyle.NEOX, batch)
    write_kv(pool, pack_kv(latent, rotated, bf16_format(), batch), loc, bf16_format(), batch)
