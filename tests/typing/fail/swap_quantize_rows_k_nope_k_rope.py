"""The two parts of the key of `quantize_rows`, swapped."""

from dsa_contracts import CpBatch
from dsa_contracts.dsa.aliases import KNope, KRope
from dsa_contracts.dsa.dims import NnzLocal
from dsa_contracts.dsa.row_formats import fp8_656_format
from dsa_contracts.dsa.states import Local, Rotated
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import quantize_rows


def layer(
    k_nope: KNope[Local[Zigzag], NnzLocal],
    k_rope: KRope[Local[Zigzag], Rotated, NnzLocal],
    batch: CpBatch[Zigzag],
) -> None:
    quantize_rows(k_nope, k_rope, fp8_656_format(), batch)
    quantize_rows(k_rope, k_nope, fp8_656_format(), batch)  # refused
