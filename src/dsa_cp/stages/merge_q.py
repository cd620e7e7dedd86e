"""Reference of `merge_q`."""

import torch

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, brand, stage
from dsa_contracts.core.marks import BF16
from dsa_contracts.dsa.aliases import QNope, QRope, Query
from dsa_contracts.dsa.states import Rotated
from dsa_contracts.dsa.typevars import L, N


@stage(contracts.merge_q)
def merge_q(
    q_nope: QNope[L, N],
    q_rope: QRope[L, Rotated, N],
    batch: CpBatch[L],
) -> Query[L, BF16, N]:
    """See `dsa_contracts.stages.merge_q`."""
    return brand(torch.cat([q_nope, q_rope], dim=-1))
