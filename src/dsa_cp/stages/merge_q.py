"""Reference of `merge_q`."""

import torch

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, Ten, brand, stage
from dsa_contracts.core.marks import BF16, Contiguous, Plain, UnitLast
from dsa_contracts.dsa.dims import KvLoraRank, NumLocalHeads, QkHeadDim, QkRopeHeadDim
from dsa_contracts.dsa.states import Local, Rotated
from dsa_contracts.dsa.typevars import L, N


@stage(contracts.merge_q)
def merge_q(
    q_nope: Ten[Local[L], Plain, BF16, UnitLast, N, NumLocalHeads, KvLoraRank],
    q_rope: Ten[Local[L], Rotated, BF16, UnitLast, N, NumLocalHeads, QkRopeHeadDim],
    batch: CpBatch[L],
) -> Ten[Local[L], Rotated, BF16, Contiguous, N, NumLocalHeads, QkHeadDim]:
    """See `dsa_contracts.stages.merge_q`."""
    return brand(torch.cat([q_nope, q_rope], dim=-1))
