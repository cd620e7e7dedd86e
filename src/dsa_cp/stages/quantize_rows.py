"""Reference of `quantize_rows`."""

import torch

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, brand, stage
from dsa_contracts.core.marks import BF16, E4M3
from dsa_contracts.dsa.aliases import DenseKvRows, KNope, KRope
from dsa_contracts.dsa.row_formats import SCALE_GROUP, RowFormat
from dsa_contracts.dsa.states import Fp8Row656, Rotated
from dsa_contracts.dsa.typevars import L, M, R
from dsa_cp.numerics.grouped_scales import quantize_groups


@stage(contracts.quantize_rows)
def quantize_rows(
    k_nope: KNope[R, M],
    k_rope: KRope[R, Rotated, M],
    row_format: RowFormat[Fp8Row656, E4M3, BF16],
    batch: CpBatch[L],
) -> DenseKvRows[R, Fp8Row656, Rotated, M]:
    """See `dsa_contracts.stages.quantize_rows`."""
    codes, scales = quantize_groups(k_nope, SCALE_GROUP)
    kv = torch.empty(k_nope.shape[0], row_format.row_bytes, dtype=torch.uint8, device=k_nope.device)
    kv[:, row_format.part("k_nope").columns] = codes.view(torch.uint8)
    kv[:, row_format.part("scales").columns] = scales.view(torch.uint8)
    kv[:, row_format.part("k_rope").columns] = k_rope.contiguous().view(torch.uint8)
    return brand(kv)
