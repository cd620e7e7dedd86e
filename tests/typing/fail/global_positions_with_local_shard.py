"""Positions of the whole batch for the rows of one rank."""

from dsa_contracts import CpBatch, RopeStyle, Ten
from dsa_contracts.core.marks import BF16, F32, Contiguous, Plain, UnitLast
from dsa_contracts.dsa.dims import CosSinWidth, MaxPosition, NnzLocal, QkRopeHeadDim
from dsa_contracts.dsa.states import Local, Raw, Table
from dsa_cp.layouts import Interleave
from dsa_cp.stages import apply_rope


def layer(
    k_rope: Ten[Local[Interleave], Raw, BF16, UnitLast, NnzLocal, QkRopeHeadDim],
    cos_sin_cache: Ten[Table, Plain, F32, Contiguous, MaxPosition, CosSinWidth],
    batch: CpBatch[Interleave],
) -> None:
    apply_rope(k_rope, batch.positions, cos_sin_cache, 64, RopeStyle.NEOX, batch)  # refused
