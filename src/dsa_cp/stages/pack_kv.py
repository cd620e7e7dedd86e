"""Reference of `pack_kv`."""

import torch

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, brand, stage
from dsa_contracts.core.marks import BF16
from dsa_contracts.dsa.aliases import DenseKvRows, KNope, KRope
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.states import Bf16Row
from dsa_contracts.dsa.typevars import L, M, P, R


@stage(contracts.pack_kv)
def pack_kv(
    k_nope: KNope[R, M],
    k_rope: KRope[R, P, M],
    row_format: RowFormat[Bf16Row, BF16, BF16],
    batch: CpBatch[L],
) -> DenseKvRows[R, Bf16Row, P, M]:
    """See `dsa_contracts.stages.pack_kv`."""
    return brand(torch.cat([k_nope, k_rope], dim=-1).view(torch.uint8))
