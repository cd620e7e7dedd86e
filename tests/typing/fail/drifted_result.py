"""An implementation that hands its rows back unrotated, under a contract that says rotated."""

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, RopeStyle, Ten, brand, stage
from dsa_contracts.core.marks import BF16, F32, I64, Contiguous, Plain, UnitLast
from dsa_contracts.dsa.dims import CosSinWidth, MaxPosition
from dsa_contracts.dsa.states import Raw, Table
from dsa_contracts.dsa.typevars import Ds, L, M, R


@stage(contracts.apply_rope)  # refused
def apply_rope(
    x: Ten[R, Raw, BF16, UnitLast, M, *Ds],
    positions: Ten[R, Plain, I64, Contiguous, M],
    cos_sin_cache: Ten[Table, Plain, F32, Contiguous, MaxPosition, CosSinWidth],
    rope_dim: int,
    rope_style: RopeStyle,
    batch: CpBatch[L],
) -> Ten[R, Raw, BF16, Contiguous, M, *Ds]:
    return brand(x.clone())
