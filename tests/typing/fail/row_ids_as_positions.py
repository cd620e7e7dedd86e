"""Which rows a rank holds, where a stage takes their positions: both are int64, one a row."""

from dsa_contracts import CpBatch, RopeStyle
from dsa_contracts.dsa.aliases import CosSinCache, KNope, KRope, QNope, QRope, TokenPositions
from dsa_contracts.dsa.dims import NnzLocal
from dsa_contracts.dsa.states import Local, Raw
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import rope_quantize


def layer(
    q_nope: QNope[Zigzag, NnzLocal],
    q_rope: QRope[Zigzag, Raw, NnzLocal],
    k_nope: KNope[Local[Zigzag], NnzLocal],
    k_rope: KRope[Local[Zigzag], Raw, NnzLocal],
    positions: TokenPositions[Local[Zigzag], NnzLocal],
    cos_sin_cache: CosSinCache,
    batch: CpBatch[Zigzag],
) -> None:
    rope_quantize(q_nope, q_rope, k_nope, k_rope, positions, cos_sin_cache, RopeStyle.NEOX, 1.0, 1.0, batch)
    rope_quantize(q_nope, q_rope, k_nope, k_rope, batch.local_rows, cos_sin_cache, RopeStyle.NEOX, 1.0, 1.0, batch)  # refused
