"""Positions of the whole batch for the rows of one rank."""

from dsa_contracts import CpBatch, RopeStyle
from dsa_contracts.dsa.aliases import CosSinCache, KRope
from dsa_contracts.dsa.dims import NnzLocal
from dsa_contracts.dsa.states import Local, Raw
from dsa_cp.layouts import Interleave
from dsa_cp.stages import apply_rope


def layer(
    k_rope: KRope[Local[Interleave], Raw, NnzLocal],
    cos_sin_cache: CosSinCache,
    batch: CpBatch[Interleave],
) -> None:
    apply_rope(k_rope, batch.positions, cos_sin_cache, 64, RopeStyle.NEOX, batch)  # refused
