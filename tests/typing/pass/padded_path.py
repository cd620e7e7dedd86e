"""Rows with the engine's padding from RoPE to attention; the pool holds real rows only."""

from dsa_contracts import CpBatch, RopeStyle
from dsa_contracts.core.marks import F32
from dsa_contracts.dsa.aliases import AttentionOut, CosSinCache, KvCache, PageTable, QNope, QRope, TopkIndices
from dsa_contracts.dsa.dims import NnzPadded
from dsa_contracts.dsa.row_formats import bf16_format
from dsa_contracts.dsa.states import Bf16Row, Raw
from dsa_cp.layer.local_batch import padded_local_batch
from dsa_cp.layouts import VllmZigzag
from dsa_cp.stages import apply_rope, attend, merge_q


def layer(
    q_nope: QNope[VllmZigzag, NnzPadded],
    q_rope: QRope[VllmZigzag, Raw, NnzPadded],
    cos_sin_cache: CosSinCache,
    pool: KvCache[Bf16Row],
    topk_indices: TopkIndices[VllmZigzag, NnzPadded],
    page_table: PageTable,
    batch: CpBatch[VllmZigzag],
) -> AttentionOut[VllmZigzag, F32, NnzPadded]:
    local = padded_local_batch(batch)
    rotated = apply_rope(q_rope, local.positions, cos_sin_cache, 64, RopeStyle.NEOX, batch)
    q = merge_q(q_nope, rotated, batch)
    lens, requests = local.causal_lens, local.request_of_row
    out, _ = attend(q, pool, topk_indices, lens, requests, page_table, 0.1, 1.0, 1.0, F32, bf16_format(), batch)
    return out
