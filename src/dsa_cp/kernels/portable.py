"""The custom ops in plain torch: what they do on devices without Triton, and what tests compare the kernels with."""

import torch
from torch import Tensor

from dsa_contracts import RopeStyle
from dsa_cp.numerics.best_keys import best_keys as best_keys_in_float64
from dsa_cp.numerics.grouped_scales import dequantize_groups
from dsa_cp.numerics.grouped_scales import quantize_groups as codes_and_scales
from dsa_cp.numerics.rotation import rotate, to_e4m3


def rope_quantize(
    q_nope: Tensor,
    q_rope: Tensor,
    k_nope: Tensor,
    k_rope: Tensor,
    positions: Tensor,
    cos_sin_cache: Tensor,
    is_neox: bool,
    scale_q: float,
    scale_kv: float,
) -> tuple[Tensor, Tensor]:
    """Return the bytes of merged q [n, heads, rank + rope] and of packed rows [n, rank + rope]."""
    style = RopeStyle.NEOX if is_neox else RopeStyle.INTERLEAVED

    def merged(nope: Tensor, rope: Tensor, scale: float) -> Tensor:
        rotated = rotate(rope, positions, cos_sin_cache, style)
        return torch.cat([to_e4m3(nope.float() * scale), to_e4m3(rotated * scale)], dim=-1)

    return merged(q_nope, q_rope, scale_q).view(torch.uint8), merged(k_nope, k_rope, scale_kv).view(torch.uint8)


def write_kv(pool: Tensor, kv: Tensor, loc: Tensor) -> None:
    """Write uint8 [n, row_bytes] rows to their slots of uint8 [num_slots, row_bytes]; a negative slot is no slot."""
    written = loc >= 0
    pool[loc[written]] = kv[written]


def quantize_groups(x: Tensor, kept: Tensor | None, group: int) -> Tensor:
    """Return packed rows, uint8: e4m3 codes of [n, d], a float32 scale for each `group` of them, `kept` as it is."""
    codes, scales = codes_and_scales(x, group)
    parts = [codes.view(torch.uint8), scales.view(torch.uint8)]
    if kept is not None:
        parts.append(kept.contiguous().view(torch.uint8))
    return torch.cat(parts, dim=-1)


def best_keys(
    q_index: Tensor,
    head_weights: Tensor,
    pool: Tensor,
    causal_lens: Tensor,
    request_of_row: Tensor,
    page_table: Tensor,
    count: int,
    max_keys: int,
    is_quantized: bool,
) -> Tensor:
    """Return int32 [n, count], positions of each row's best keys; `max_keys` is what a launch must know beforehand."""
    tables = (causal_lens, request_of_row, page_table)
    return best_keys_in_float64(q_index, head_weights, pool, *tables, count, is_quantized)


def key_values(pool: Tensor, rank: int, width: int, group: int, dtype: torch.dtype) -> Tensor:
    """Return the values of packed rows, [..., width], before any scale of the layer.

    Args:
        pool: uint8 [..., row_bytes].
        rank: width of the latent.
        width: width of the latent and the rope part.
        group: codes under one scale of the row; 0 for bf16 and for flat e4m3 rows.
        dtype: dtype of the result.
    """
    if not group:
        packed = torch.float8_e4m3fn if pool.shape[-1] == width else torch.bfloat16
        return pool.view(packed).to(dtype)
    rows = pool.reshape(-1, pool.shape[-1])
    end = rank + 4 * rank // group
    codes = rows[:, :rank].contiguous().view(torch.float8_e4m3fn)
    latent = dequantize_groups(codes, rows[:, rank:end].contiguous().view(torch.float32))
    rotated = rows[:, end:].contiguous().view(torch.bfloat16)
    return torch.cat([latent.to(dtype), rotated.to(dtype)], dim=-1).view(*pool.shape[:-1], width)


def attend(
    q: Tensor,
    pool: Tensor,
    topk_indices: Tensor,
    causal_lens: Tensor,
    request_of_row: Tensor,
    page_table: Tensor,
    softmax_scale: float,
    q_scale: float,
    kv_scale: float,
    out_dtype: torch.dtype,
    rank: int,
    group: int,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor]:
    """Return out and lse of sparse MLA, computed in `dtype` over gathered keys; see the op for the arguments."""
    rows, heads, width = q.shape
    q = q.view(torch.float8_e4m3fn) if q.dtype == torch.uint8 else q
    page_size = pool.shape[1]
    legal = (topk_indices >= 0) & (topk_indices < causal_lens[:, None])
    entry = torch.where(legal, topk_indices, 0).long()
    pages = page_table[request_of_row.long()[:, None], entry // page_size].long()
    slots = torch.where(legal, pages * page_size + entry % page_size, 0)
    keys = key_values(pool, rank, width, group, dtype).view(-1, width)[slots] * kv_scale
    keys = torch.where(legal[..., None], keys, 0)
    scores = torch.einsum("nhd,nkd->nhk", q.to(dtype) * (q_scale * softmax_scale), keys)
    scores = scores.masked_fill(~legal[:, None, :], float("-inf"))
    lse = torch.logsumexp(scores, dim=-1) if scores.shape[-1] else scores.new_full((rows, heads), float("-inf"))
    weights = torch.where(legal[:, None, :], (scores - torch.where(lse.isneginf(), 0, lse)[..., None]).exp(), 0)
    out = torch.einsum("nhk,nkd->nhd", weights, keys[..., :rank])
    return out.to(out_dtype), lse.float()
