"""Reference of `apply_rope`: float32 rotation, one rounding to bf16."""

import torch

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, RopeStyle, brand, stage
from dsa_contracts.dsa.aliases import CosSinCache, RawRows, RotatedRows, TokenPositions
from dsa_contracts.dsa.typevars import Ds, L, M, R
from dsa_cp.numerics.rotation import rotate


@stage(contracts.apply_rope)
def apply_rope(
    x: RawRows[R, M, *Ds],
    positions: TokenPositions[R, M],
    cos_sin_cache: CosSinCache,
    rope_dim: int,
    rope_style: RopeStyle,
    batch: CpBatch[L],
) -> RotatedRows[R, M, *Ds]:
    """See `dsa_contracts.stages.apply_rope`."""
    rotated = rotate(x[..., :rope_dim], positions, cos_sin_cache, rope_style).bfloat16()
    return brand(torch.cat([rotated, x[..., rope_dim:]], dim=-1))
