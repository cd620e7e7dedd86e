"""Raw rows as the collective left them, rotated by positions in sequence order: the restore was forgotten."""

from dsa_contracts import Comm, CpBatch, RopeStyle
from dsa_contracts.dsa.aliases import CosSinCache, DenseKvRows
from dsa_contracts.dsa.dims import NnzLocal
from dsa_contracts.dsa.row_formats import bf16_format
from dsa_contracts.dsa.states import Bf16Row, Local, PackedRowStride, Raw
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import all_gather_kv, apply_rope, split_kv


def layer(
    kv: DenseKvRows[Local[Zigzag], Bf16Row, Raw, NnzLocal],
    cos_sin_cache: CosSinCache,
    batch: CpBatch[Zigzag],
    comm: Comm,
) -> None:
    gathered = all_gather_kv(kv, bf16_format(), batch, comm)
    _, k_rope = split_kv(gathered, bf16_format(), PackedRowStride, batch)
    apply_rope(k_rope, batch.positions, cos_sin_cache, 64, RopeStyle.NEOX, batch)  # refused
