"""RoPE of what is rotated already."""

from dsa_contracts import CpBatch, RopeStyle, Ten
from dsa_contracts.core.marks import BF16, F32, I64, Contiguous, Plain, UnitLast
from dsa_contracts.dsa.dims import CosSinWidth, MaxPosition, NnzLocal, QkRopeHeadDim
from dsa_contracts.dsa.states import Local, Raw, Table
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import apply_rope


def layer(
    k_rope: Ten[Local[Zigzag], Raw, BF16, UnitLast, NnzLocal, QkRopeHeadDim],
    positions: Ten[Local[Zigzag], Plain, I64, Contiguous, NnzLocal],
    cos_sin_cache: Ten[Table, Plain, F32, Contiguous, MaxPosition, CosSinWidth],
    batch: CpBatch[Zigzag],
) -> None:
    once = apply_rope(k_rope, positions, cos_sin_cache, 64, RopeStyle.NEOX, batch)
    apply_rope(once, positions, cos_sin_cache, 64, RopeStyle.NEOX, batch)  # refused
