"""RoPE of what is rotated already."""

from dsa_contracts import CpBatch, RopeStyle
from dsa_contracts.dsa.aliases import CosSinCache, KRope, TokenPositions
from dsa_contracts.dsa.dims import NnzLocal
from dsa_contracts.dsa.states import Local, Raw
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import apply_rope


def layer(
    k_rope: KRope[Local[Zigzag], Raw, NnzLocal],
    positions: TokenPositions[Local[Zigzag], NnzLocal],
    cos_sin_cache: CosSinCache,
    batch: CpBatch[Zigzag],
) -> None:
    once = apply_rope(k_rope, positions, cos_sin_cache, 64, RopeStyle.NEOX, batch)
    apply_rope(once, positions, cos_sin_cache, 64, RopeStyle.NEOX, batch)  # refused
