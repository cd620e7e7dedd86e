"""The Triton launches, and the same as torch custom ops: what `torch.compile` sees, and what runs on a CPU.

Each function launches on a GPU. Its op (`..._OP`) does the same there, runs `dsa_cp.kernels.portable` on a CPU, and says
to a tracer what comes out. Eager code calls the function: the op's dispatcher costs more than the launch. e4m3 codes go in
and out as bytes: torch's checks of an op do arithmetic on what it takes and returns, and e4m3 has none.
"""

import torch
from torch import Tensor

from dsa_cp.kernels import portable
from dsa_cp.kernels.requirements import require_capability

E4M3_CASTS = (8, 9)
"""The first compute capability with casts to e4m3."""


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
    """RoPE and e4m3: the bytes of merged q [n, heads, rank + rope] and of packed K rows [n, rank + rope]."""
    require_capability("Triton rope_quantize", q_nope.device, E4M3_CASTS)
    from dsa_cp.triton_jit.rope_quantize import rope_quantize as launch

    return launch(q_nope, q_rope, k_nope, k_rope, positions, cos_sin_cache, is_neox, scale_q, scale_kv)


def write_kv(pool: Tensor, kv: Tensor, loc: Tensor) -> None:
    """Write uint8 [n, row_bytes] rows to slots of uint8 [num_slots, row_bytes], in place; negative: not written."""
    from dsa_cp.triton_jit.write_kv import write_kv as launch

    launch(pool, kv, loc)


def quantize_groups(x: Tensor, kept: Tensor | None, group: int) -> Tensor:
    """Packed rows, uint8: e4m3 codes of bf16 [n, d], one float32 scale for each `group`, the bf16 of `kept`."""
    require_capability("Triton quantize_rows", x.device, E4M3_CASTS)
    from dsa_cp.triton_jit.quantize_rows import quantize_groups as launch

    return launch(x, kept, group)


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
) -> tuple[Tensor, Tensor]:
    """Sparse MLA, as the contract of `attend` says; `rank` and `group` (codes a scale, 0: none) say the row format."""
    require_capability("Triton attend", q.device, (9, 0))
    from dsa_cp.triton_jit.attend import attend as launch
    from dsa_cp.triton_jit.attend import pays_to_convert
    from dsa_cp.triton_jit.dequantize_pages import dequantize_pages
    from dsa_cp.triton_jit.slots_of_topk import slots_of_topk

    page_size, two_bytes = pool.shape[1], torch.bfloat16
    in_place = not pays_to_convert(q, pool, topk_indices.shape[1], page_table.numel(), group, rank)
    if not in_place:
        two_bytes = torch.float16 if q.dtype == torch.uint8 and not group else torch.bfloat16
        q = q.view(torch.float8_e4m3fn).to(two_bytes) if q.dtype == torch.uint8 else q
        keys = dequantize_pages(pool, page_table, rank, group, two_bytes)
        pool, group = keys.view(torch.uint8).view(-1, page_size, 2 * keys.shape[1]), 0
    slots, counts = slots_of_topk(topk_indices, causal_lens, request_of_row, page_table, page_size, is_paged=in_place)
    score_scale = softmax_scale * q_scale * kv_scale
    return launch(q, pool, slots, counts, score_scale, kv_scale, out_dtype, rank, group, two_bytes)


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
    """The lightning indexer: int32 [n, count], as the contract of `select_topk` says; no row sees more than `max_keys`."""
    require_capability("Triton select_topk", q_index.device, E4M3_CASTS)
    from dsa_cp.triton_jit.best_keys import best_keys as launch

    tables = (causal_lens, request_of_row, page_table)
    return launch(q_index, head_weights, pool, *tables, count, max_keys, is_quantized)


ROPE_QUANTIZE_OP = torch.library.custom_op("dsa_cp::rope_quantize", rope_quantize, mutates_args=(), device_types="cuda")
WRITE_KV_OP = torch.library.custom_op("dsa_cp::write_kv", write_kv, mutates_args=("pool",), device_types="cuda")
QUANTIZE_GROUPS_OP = torch.library.custom_op("dsa_cp::quantize_groups", quantize_groups, mutates_args=(), device_types="cuda")
ATTEND_OP = torch.library.custom_op("dsa_cp::attend", attend, mutates_args=(), device_types="cuda")
BEST_KEYS_OP = torch.library.custom_op("dsa_cp::best_keys", best_keys, mutates_args=(), device_types="cuda")

ROPE_QUANTIZE_OP.register_kernel("cpu", portable.rope_quantize)
WRITE_KV_OP.register_kernel("cpu", portable.write_kv)
QUANTIZE_GROUPS_OP.register_kernel("cpu", portable.quantize_groups)
ATTEND_OP.register_kernel("cpu", portable.attend)
BEST_KEYS_OP.register_kernel("cpu", portable.best_keys)


@ROPE_QUANTIZE_OP.register_fake
def _(
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
    rows, heads, rank = q_nope.shape
    q = q_nope.new_empty(rows, heads, rank + q_rope.shape[-1], dtype=torch.uint8)
    return q, k_nope.new_empty(rows, rank + k_rope.shape[-1], dtype=torch.uint8)


@WRITE_KV_OP.register_fake
def _(pool: Tensor, kv: Tensor, loc: Tensor) -> None:
    return None


@QUANTIZE_GROUPS_OP.register_fake
def _(x: Tensor, kept: Tensor | None, group: int) -> Tensor:
    width = x.shape[1] + 4 * (x.shape[1] // group) + (0 if kept is None else 2 * kept.shape[1])
    return x.new_empty(x.shape[0], width, dtype=torch.uint8)


@ATTEND_OP.register_fake
def _(
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
) -> tuple[Tensor, Tensor]:
    rows, heads, _ = q.shape
    return q.new_empty(rows, heads, rank, dtype=out_dtype), q.new_empty(rows, heads, dtype=torch.float32)


@BEST_KEYS_OP.register_fake
def _(
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
    return q_index.new_empty(q_index.shape[0], count, dtype=torch.int32)
