"""The rope part in place of the latent, and the latent in place of the rope part."""

from dsa_contracts import CpBatch, Ten
from dsa_contracts.core.marks import BF16, Plain, UnitLast
from dsa_contracts.dsa.dims import KvLoraRank, NnzLocal, QkRopeHeadDim
from dsa_contracts.dsa.row_formats import bf16_format
from dsa_contracts.dsa.states import Local, Rotated
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import pack_kv


def layer(
    k_nope: Ten[Local[Zigzag], Plain, BF16, UnitLast, NnzLocal, KvLoraRank],
    k_rope: Ten[Local[Zigzag], Rotated, BF16, UnitLast, NnzLocal, QkRopeHeadDim],
    batch: CpBatch[Zigzag],
) -> None:
    pack_kv(k_rope, k_nope, bf16_format(), batch)  # refused
