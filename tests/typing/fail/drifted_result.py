"""An implementation that hands its rows back unrotated, under a contract that says rotated."""

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, RopeStyle, Ten, brand, stage
from dsa_contracts.core.marks import BF16, Contiguous
from dsa_contracts.dsa.aliases import CosSinCache, RawRows, TokenPositions
from dsa_contracts.dsa.states import Raw
from dsa_contracts.dsa.typevars import Ds, L, M, R


@stage(contracts.apply_rope)  # refused
def apply_rope(
    x: RawRows[R, M, *Ds],
    positions: TokenPositions[R, M],
    cos_sin_cache: CosSinCache,
    rope_dim: int,
    rope_style: RopeStyle,
    batch: CpBatch[L],
) -> Ten[R, Raw, BF16, Contiguous, M, *Ds]:
    return brand(x.clone())
