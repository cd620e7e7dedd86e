"""The rope part in place of the latent, and the latent in place of the rope part."""

from dsa_contracts import CpBatch, Ten
from dsa_contracts.dims import KvLoraRank, NnzLocal, QkRopeHeadDim
from dsa_contracts.formats import bf16_format
from dsa_contracts.states import BF16, Local, Plain, Rotated, UnitLast
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import pack_kv


def layer(
    k_nope: Ten[Local[Zigzag], Plain, BF16, UnitLast, NnzLocal, KvLoraRank],
    k_rope: Ten[Local[Zigzag], Rotated, BF16, UnitLast, NnzLocal, QkRopeHeadDim],
    batch: CpBatch[Zigzag],
) -> None:
    pack_kv(k_rope, k_nope, bf16_format(), batch)  # refused
