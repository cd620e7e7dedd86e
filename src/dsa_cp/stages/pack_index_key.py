"""Reference of `pack_index_key`."""

import torch

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, brand, stage
from dsa_contracts.dsa.aliases import DenseKvRows, IndexKey
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.states import Rotated
from dsa_contracts.dsa.typevars import ND, RD, F, L, M, R
from dsa_cp.numerics.grouped_scales import quantize_groups


@stage(contracts.pack_index_key)
def pack_index_key(
    k_index: IndexKey[R, Rotated, M],
    row_format: RowFormat[F, ND, RD],
    batch: CpBatch[L],
) -> DenseKvRows[R, F, Rotated, M]:
    """See `dsa_contracts.stages.pack_index_key`."""
    if not row_format.is_quantized:
        return brand(k_index.clone(memory_format=torch.contiguous_format).view(torch.uint8))
    codes, scales = quantize_groups(k_index, k_index.shape[-1])
    return brand(torch.cat([codes.view(torch.uint8), scales.view(torch.uint8)], dim=-1))
