"""The rope part in place of the latent, and the latent in place of the rope part."""

from dsa_contracts import CpBatch
from dsa_contracts.dsa.aliases import KNope, KRope
from dsa_contracts.dsa.dims import NnzLocal
from dsa_contracts.dsa.row_formats import bf16_format
from dsa_contracts.dsa.states import Local, Rotated
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import pack_kv


def layer(
    k_nope: KNope[Local[Zigzag], NnzLocal],
    k_rope: KRope[Local[Zigzag], Rotated, NnzLocal],
    batch: CpBatch[Zigzag],
) -> None:
    pack_kv(k_rope, k_nope, bf16_format(), batch)  # refused
