"""The rotation itself, in float32: shared by the stages that apply RoPE."""

import torch
from torch import Tensor

from dsa_contracts import RopeStyle


def rotate(x: Tensor, positions: Tensor, cos_sin_cache: Tensor, style: RopeStyle) -> Tensor:
    """Rotate the last dim of `x`.

    Args:
        x: [n, ..., d], any float dtype; d even.
        positions: int64 [n].
        cos_sin_cache: float32 [max_position, d]: d / 2 cosines, then d / 2 sines.
        style: which elements form a pair.

    Returns:
        float32 [n, ..., d], new memory.

    Source: flashinfer include/flashinfer/pos_enc.cuh@0.7.2 (each product rounded, then their sum).
    """
    half = x.shape[-1] // 2
    table = cos_sin_cache[positions]
    table = table.reshape(table.shape[0], *([1] * (x.dim() - 2)), 2 * half)
    cos, sin = table[..., :half], table[..., half:]
    wide = x.float()
    if style is RopeStyle.NEOX:
        first, second = wide[..., :half], wide[..., half:]
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    first, second = wide[..., 0::2], wide[..., 1::2]
    return torch.stack([first * cos - second * sin, second * cos + first * sin], dim=-1).flatten(-2)


def to_e4m3(x: Tensor) -> Tensor:
    """Cast float32 to e4m3: nearest even, saturated to +-448, NaN kept.

    The clamp is explicit because the cast itself saturates in some versions of torch and not in others.
    """
    return x.clamp(-448.0, 448.0).to(torch.float8_e4m3fn)


def cos_sin_table(num_positions: int, rope_dim: int, theta: float) -> Tensor:
    """Return a cos/sin table: float32 [num_positions, rope_dim], angle_i = position * theta^(-2 i / rope_dim)."""
    inverse = theta ** -(torch.arange(0, rope_dim, 2, dtype=torch.float64) / rope_dim)
    angles = torch.outer(torch.arange(num_positions, dtype=torch.float64), inverse)
    return torch.cat([angles.cos(), angles.sin()], dim=-1).float()
