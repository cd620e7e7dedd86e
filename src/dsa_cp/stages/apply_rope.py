"""Reference of `apply_rope`: float32 rotation, one rounding to bf16."""

import torch

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, RopeStyle, Ten, brand, stage
from dsa_contracts.core.marks import BF16, F32, I64, Contiguous, Plain, UnitLast
from dsa_contracts.dsa.dims import CosSinWidth, MaxPosition
from dsa_contracts.dsa.states import Raw, Rotated, Table
from dsa_contracts.dsa.typevars import Ds, L, M, R
from dsa_cp.numerics.rotation import rotate


@stage(contracts.apply_rope)
def apply_rope(
    x: Ten[R, Raw, BF16, UnitLast, M, *Ds],
    positions: Ten[R, Plain, I64, Contiguous, M],
    cos_sin_cache: Ten[Table, Plain, F32, Contiguous, MaxPosition, CosSinWidth],
    rope_dim: int,
    rope_style: RopeStyle,
    batch: CpBatch[L],
) -> Ten[R, Rotated, BF16, Contiguous, M, *Ds]:
    """See `dsa_contracts.stages.apply_rope`."""
    rotated = rotate(x[..., :rope_dim], positions, cos_sin_cache, rope_style).bfloat16()
    return brand(torch.cat([rotated, x[..., rope_dim:]], dim=-1))
