"""e4m3 with one float32 scale a group: shared by the stages that quantise rows."""

import torch
from torch import Tensor

from dsa_cp.numerics.rotation import to_e4m3

TINY = torch.finfo(torch.float32).tiny


def quantize_groups(x: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """Quantise the last dim in groups, each under its own scale.

    Args:
        x: [n, d], any float dtype; d a multiple of `group`.
        group: elements that share a scale.

    Returns:
        e4m3 [n, d] codes and float32 [n, d / group] scales: the largest magnitude of the group / 448, or the smallest
        normal float32 where that is smaller; x is about code * scale. The divisor is a tensor: on CUDA a division by a
        Python number is a product with its reciprocal, one step off for some values.
    """
    wide = x.float().reshape(x.shape[0], x.shape[1] // group, group)
    largest = wide.abs().amax(dim=-1)
    scales = (largest / largest.new_full((), 448.0)).clamp(min=TINY)
    return to_e4m3(wide / scales[..., None]).flatten(-2), scales


def dequantize_groups(codes: Tensor, scales: Tensor) -> Tensor:
    """Return float32 [n, d] from e4m3 [n, d] codes and float32 [n, groups] scales."""
    rows, groups = scales.shape
    wide = codes.float().reshape(rows, groups, codes.shape[1] // groups)
    return (wide * scales[..., None]).flatten(-2)
