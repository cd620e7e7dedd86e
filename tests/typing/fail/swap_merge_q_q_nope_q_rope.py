"""The two parts of the queries of `merge_q`, swapped."""

from dsa_contracts import CpBatch
from dsa_contracts.dsa.aliases import QNope, QRope
from dsa_contracts.dsa.dims import NnzLocal
from dsa_contracts.dsa.states import Rotated
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import merge_q


def layer(
    q_nope: QNope[Zigzag, NnzLocal],
    q_rope: QRope[Zigzag, Rotated, NnzLocal],
    batch: CpBatch[Zigzag],
) -> None:
    merge_q(q_nope, q_rope, batch)
    merge_q(q_rope, q_nope, batch)  # refused
