"""Reference of `attend`: for each request a masked product over all its keys, in float32, whatever the row format."""

import torch
from torch import Tensor

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, brand, declare, stage
from dsa_contracts.dsa.aliases import (
    AttentionLse,
    AttentionOut,
    CausalLens,
    KvCache,
    KvRows,
    PageTable,
    Query,
    RequestOfRow,
    TopkIndices,
)
from dsa_contracts.dsa.dims import NumSlots
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.states import Local, Packed, PackedRowStride, Pool, Rotated
from dsa_contracts.dsa.typevars import AD, ND, QD, RD, F, L, N
from dsa_cp.numerics.grouped_scales import dequantize_groups
from dsa_cp.numerics.paged_keys import row_blocks, slots_of_request
from dsa_cp.stages.split_kv import part_of, split_kv


@stage(contracts.attend)
def attend(
    q: Query[L, QD, N],
    pool: KvCache[F],
    topk_indices: TopkIndices[L, N],
    causal_lens: CausalLens[Local[L], N],
    request_of_row: RequestOfRow[Local[L], N],
    page_table: PageTable,
    softmax_scale: float,
    q_scale: float,
    kv_scale: float,
    out_dtype: type[AD],
    row_format: RowFormat[F, ND, RD],
    batch: CpBatch[L],
) -> tuple[AttentionOut[L, AD, N], AttentionLse[L, N]]:
    """See `dsa_contracts.stages.attend`."""
    rows, heads, _ = q.shape
    rank = row_format.part("k_nope").count
    out = torch.zeros(rows, heads, rank, dtype=out_dtype.torch_dtype, device=q.device)
    lse = torch.full((rows, heads), float("-inf"), device=q.device)
    for request, blocks in row_blocks(request_of_row, causal_lens):
        slots = slots_of_request(page_table, request, blocks[-1].num_keys, pool.shape[1])
        keys = values_of_rows(pool.view(-1, pool.shape[-1])[slots], row_format, kv_scale, batch)
        for block in blocks:
            visible = _visible(topk_indices[block.rows], causal_lens[block.rows], block.num_keys)
            scaled = q[block.rows].float() * (q_scale * softmax_scale)
            out_block, lse[block.rows] = _attend_block(scaled, keys[: block.num_keys], visible, rank)
            out[block.rows] = out_block.to(out.dtype)
    return brand(out), brand(lse)


def values_of_rows(rows: Tensor, row_format: RowFormat[F, ND, RD], kv_scale: float, batch: CpBatch[L]) -> Tensor:
    """Return the values of packed KV rows: float32 [n, kv_lora_rank + qk_rope_head_dim].

    Args:
        rows: uint8 [n, row_bytes], rotated.
        row_format: `bf16`, `fp8` or `fp8_656`.
        kv_scale: value = code * kv_scale; for `fp8_656` on top of the row's own scales.
        batch: the batch that the rows are read for.
    """
    state = Packed[row_format.mark, Rotated]  # type: ignore[name-defined]
    packed: KvRows[Pool, F, Rotated, NumSlots] = declare(rows, Pool, state, batch, "attend")
    k_nope, k_rope = split_kv(packed, row_format, PackedRowStride, batch)
    latent = k_nope.float()
    if row_format.scale_part is not None:
        latent = dequantize_groups(k_nope, part_of(rows, row_format.scale_part).float())
    return torch.cat([latent, k_rope.float()], dim=-1) * kv_scale


def _visible(topk: Tensor, causal_lens: Tensor, num_keys: int) -> Tensor:
    """Return bool [n, num_keys]: whether a row attends to a key. Entries outside 0..causal_len-1 count for nothing."""
    legal = (topk >= 0) & (topk < causal_lens[:, None])
    chosen = torch.zeros(topk.shape[0], num_keys + 1, dtype=torch.bool, device=topk.device)
    chosen.scatter_(1, torch.where(legal, topk, num_keys).long(), value=True)
    return chosen[:, :num_keys]


def _attend_block(q: Tensor, keys: Tensor, visible: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Return out [n, heads, rank] and lse [n, heads] of one block.

    Args:
        q: float32 [n, heads, d], scaled.
        keys: float32 [num_keys, d]; the first `rank` columns are also the values.
        visible: bool [n, num_keys].
        rank: width of the latent.
    """
    rows, heads, _ = q.shape
    scores = (q.flatten(0, 1) @ keys.T).view(rows, heads, -1)
    scores.masked_fill_(~visible[:, None, :], float("-inf"))
    top = scores.amax(dim=-1, keepdim=True)
    weights = (scores - torch.where(top.isneginf(), 0.0, top)).exp_()
    total = weights.sum(dim=-1)
    # A key that is not finite has weight 0 in rows that do not attend to it, and 0 * NaN would reach them all the same. Rows
    # that do attend to it are NaN through its score.
    values = torch.where(keys.isfinite(), keys, 0.0)[:, :rank]
    out = (weights.flatten(0, 1) @ values).view(rows, heads, rank)
    out = torch.where(total[..., None] == 0, 0.0, out / total[..., None])
    return out, total.log() + top[..., 0]
