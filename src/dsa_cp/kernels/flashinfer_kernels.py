"""`rope_quantize` and `attend` through flashinfer; the one place that imports flashinfer.

Source: flashinfer 0.6.13 and 0.7.2, `mla_rope_quantize_fp8` and `trtllm_batch_decode_with_kv_cache_mla` (trtllm-gen). The
first was run on an H200. The second exists for compute capability 10.0 and 10.3 alone and was not run by us: lse in base 2
is from vllm-project/vllm#43919, rows without keys from flashinfer-ai/flashinfer#4975.
"""

import math
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, RopeStyle, brand, stage
from dsa_contracts.core.marks import E4M3
from dsa_contracts.dsa.aliases import (
    AttentionLse,
    AttentionOut,
    CausalLens,
    CosSinCache,
    DenseKvRows,
    KNope,
    KRope,
    KvCache,
    PageTable,
    QNope,
    QRope,
    Query,
    RequestOfRow,
    TokenPositions,
    TopkIndices,
)
from dsa_contracts.dsa.codes import PlanError
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.states import Fp8Row, Local, Raw, Rotated
from dsa_contracts.dsa.typevars import AD, ND, QD, RD, F, L, N
from dsa_cp.kernels.requirements import (
    capability_of,
    require_32_bit_slots,
    require_aligned,
    require_capability,
    require_one_of,
)

VECTOR = 16
"""Elements of a thread in flashinfer's RoPE kernel, in loads of 16 bytes; it checks no strides or addresses for them."""

TRTLLM_CAPABILITIES = ((10, 0), (10, 3))
WORKSPACE_BYTES = 128 * 1024 * 1024


@cache
def _entry(module: str, name: str) -> Callable[..., Any]:
    """Return a function of flashinfer; raises PlanError DSA401 where the package is missing."""
    try:
        return getattr(import_module(f"flashinfer.{module}"), name)  # type: ignore[no-any-return]
    except ImportError as error:
        raise PlanError(f"flashinfer is not installed: {error}", facts=[("try", "pip install flashinfer-python")]) from None


@stage(contracts.rope_quantize)
def rope_quantize(
    q_nope: QNope[L, N],
    q_rope: QRope[L, Raw, N],
    k_nope: KNope[Local[L], N],
    k_rope: KRope[Local[L], Raw, N],
    positions: TokenPositions[Local[L], N],
    cos_sin_cache: CosSinCache,
    rope_style: RopeStyle,
    quant_scale_q: float,
    quant_scale_kv: float,
    batch: CpBatch[L],
) -> tuple[Query[L, E4M3, N], DenseKvRows[Local[L], Fp8Row, Rotated, N]]:
    """See `dsa_contracts.stages.rope_quantize`. K goes through column slices straight into the packed rows."""
    user, is_neox = "flashinfer rope_quantize", rope_style is RopeStyle.NEOX
    require_capability(user, q_nope.device, (8, 9))
    least = 2 * VECTOR if is_neox else VECTOR
    if q_rope.shape[-1] % least or q_nope.shape[-1] % VECTOR:
        raise PlanError(f"{user} takes a latent in multiples of {VECTOR} and a rope part in multiples of {least}")
    for name, tensor in (("q_nope", q_nope), ("q_rope", q_rope), ("k_nope", k_nope), ("k_rope", k_rope)):
        require_aligned(user, name, tensor, 16)
    q, kv = launch_rope_quantize(
        q_nope, q_rope, k_nope, k_rope, positions, cos_sin_cache, is_neox, quant_scale_q, quant_scale_kv
    )
    return brand(q), brand(kv)


def launch_rope_quantize(
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
    """Launch without checks; arguments and results are those of `custom_ops.rope_quantize`."""
    rows, heads, rank = q_nope.shape
    q = torch.empty(rows, heads, rank + q_rope.shape[-1], dtype=torch.float8_e4m3fn, device=q_nope.device)
    kv = torch.empty(rows, rank + k_rope.shape[-1], dtype=torch.float8_e4m3fn, device=q_nope.device)
    if rows:  # flashinfer launches a grid of no blocks for no rows, which is an error
        _entry("rope", "mla_rope_quantize_fp8")(
            q_rope,
            k_rope,
            q_nope,
            k_nope,
            cos_sin_cache,
            positions,
            is_neox=is_neox,
            quantize_dtype=torch.float8_e4m3fn,
            quant_scale_q=scale_q,
            quant_scale_kv=scale_kv,
            q_rope_out=q[..., rank:],
            k_rope_out=kv[:, rank:],
            q_nope_out=q[..., :rank],
            k_nope_out=kv[:, :rank],
        )
    return q, kv.view(torch.uint8)


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
    """See `dsa_contracts.stages.attend`. A key that is named twice counts twice; out is rounded to bf16."""
    rank, dtype = row_format.part("k_nope").count, out_dtype.torch_dtype
    _require_trtllm(q, pool, rank, row_format.name)
    if q.shape[0] == 0:
        return brand(q.new_empty(0, q.shape[1], rank, dtype=dtype)), brand(q.new_empty(0, q.shape[1], dtype=torch.float32))
    from dsa_cp.triton_jit.finish_attend import finish_attend
    from dsa_cp.triton_jit.slots_of_topk import slots_of_topk

    slots, counts = slots_of_topk(topk_indices, causal_lens, request_of_row, page_table, pool.shape[1], is_paged=True)
    packed = torch.bfloat16 if row_format.name == "bf16" else torch.float8_e4m3fn
    mean, lse = _entry("mla", "trtllm_batch_decode_with_kv_cache_mla")(
        query=q[:, None],
        kv_cache=pool.view(packed)[:, None],
        workspace_buffer=_workspace(q.device),
        qk_nope_head_dim=128,
        kv_lora_rank=rank,
        qk_rope_head_dim=q.shape[2] - rank,
        block_tables=slots[:, None],
        seq_lens=counts.clamp(min=1),
        max_seq_len=slots.shape[1],
        sparse_mla_top_k=slots.shape[1],
        bmm1_scale=softmax_scale * q_scale * kv_scale,
        bmm2_scale=1.0,
        backend="trtllm-gen",
        return_lse=True,
    )
    natural = lse.view(q.shape[:2]) * math.log(2.0)
    return brand(finish_attend(mean[:, 0], natural, counts, kv_scale, dtype)), brand(natural)


@cache
def _workspace(device: torch.device) -> Tensor:
    """Return the kernel's workspace, zero before its first use; one a device, so launches on it must be on one stream."""
    return torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=device)


def _require_trtllm(q: Tensor, pool: Tensor, rank: int, row_format: str) -> None:
    """Refuse what trtllm-gen's sparse MLA is not built for."""
    user = "flashinfer trtllm-gen attend"
    got = capability_of(q.device) if q.is_cuda else str(q.device)
    require_one_of(user, "compute capability", got, TRTLLM_CAPABILITIES)
    require_one_of(user, "row format", row_format, ("bf16", "fp8"))
    require_one_of(user, "q", q.dtype, (torch.bfloat16,) if row_format == "bf16" else (torch.float8_e4m3fn,))
    require_one_of(user, "kv_lora_rank and qk_rope_head_dim", (rank, q.shape[2] - rank), ((512, 64),))
    require_one_of(user, "page_size", pool.shape[1], (32, 64))
    require_32_bit_slots(user, pool.shape[0] * pool.shape[1])
    if 64 < q.shape[1] < 128:
        raise PlanError(f"{user} is not built for 65 to 127 heads, got {q.shape[1]}")
