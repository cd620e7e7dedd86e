"""Reference of `pack_kv`."""

import torch

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, Ten, brand, stage
from dsa_contracts.core.marks import BF16, U8, Contiguous, Plain, UnitLast
from dsa_contracts.dsa.dims import KvLoraRank, QkRopeHeadDim, RowBytes
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.states import Bf16Row, Packed
from dsa_contracts.dsa.typevars import L, M, P, R


@stage(contracts.pack_kv)
def pack_kv(
    k_nope: Ten[R, Plain, BF16, UnitLast, M, KvLoraRank],
    k_rope: Ten[R, P, BF16, UnitLast, M, QkRopeHeadDim],
    row_format: RowFormat[Bf16Row, BF16, BF16],
    batch: CpBatch[L],
) -> Ten[R, Packed[Bf16Row, P], U8, Contiguous, M, RowBytes]:
    """See `dsa_contracts.stages.pack_kv`."""
    return brand(torch.cat([k_nope, k_rope], dim=-1).view(torch.uint8))
