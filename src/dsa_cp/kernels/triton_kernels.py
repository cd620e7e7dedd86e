"""Stages in Triton, on any GPU from SM89 (`attend`: SM90). Under `torch.compile`, and on a CPU, they are custom ops."""

import torch
from torch import Tensor

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, RopeStyle, brand, stage
from dsa_contracts.core.marks import BF16, E4M3
from dsa_contracts.dsa.aliases import (
    AttentionLse,
    AttentionOut,
    CausalLens,
    CosSinCache,
    DenseKvRows,
    IndexKey,
    IndexQuery,
    IndexWeights,
    KNope,
    KRope,
    KvCache,
    KvRows,
    PageTable,
    QNope,
    QRope,
    Query,
    RequestOfRow,
    SlotMapping,
    TokenPositions,
    TopkIndices,
)
from dsa_contracts.dsa.row_formats import SCALE_GROUP, RowFormat
from dsa_contracts.dsa.slots import with_negatives_for_skipped
from dsa_contracts.dsa.states import Fp8Row, Fp8Row656, Global, Local, Raw, Rotated
from dsa_contracts.dsa.typevars import AD, ND, QD, RD, F, G, L, M, N, O, R
from dsa_cp.kernels import custom_ops
from dsa_cp.kernels.requirements import require_32_bit_slots, require_one_of, require_power_of_two, scale_group_of


def _launches(tensor: Tensor) -> bool:
    """Whether a stage launches at once; else its op stands in: a tracer sees it, and a CPU runs it in torch."""
    return tensor.is_cuda and not torch.compiler.is_compiling()


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
    """See `dsa_contracts.stages.rope_quantize`."""
    _require_widths("rope_quantize", q_nope.shape[-1], q_rope.shape[-1])
    is_neox = rope_style is RopeStyle.NEOX
    run = custom_ops.rope_quantize if _launches(q_nope) else custom_ops.ROPE_QUANTIZE_OP
    q, kv = run(q_nope, q_rope, k_nope, k_rope, positions, cos_sin_cache, is_neox, quant_scale_q, quant_scale_kv)
    return brand(q.view(torch.float8_e4m3fn)), brand(kv)


@stage(contracts.write_kv)
def write_kv(
    pool: KvCache[F],
    kv: KvRows[Global[O], F, Rotated, G],
    loc: SlotMapping[O, G],
    row_format: RowFormat[F, ND, RD],
    batch: CpBatch[L],
) -> None:
    """See `dsa_contracts.stages.write_kv`."""
    run = custom_ops.write_kv if _launches(pool) else custom_ops.WRITE_KV_OP
    run(pool.view(-1, pool.shape[-1]), kv, with_negatives_for_skipped(loc, batch.slot_skip))


@stage(contracts.quantize_rows)
def quantize_rows(
    k_nope: KNope[R, M],
    k_rope: KRope[R, Rotated, M],
    row_format: RowFormat[Fp8Row656, E4M3, BF16],
    batch: CpBatch[L],
) -> DenseKvRows[R, Fp8Row656, Rotated, M]:
    """See `dsa_contracts.stages.quantize_rows`."""
    _require_widths("quantize_rows", k_nope.shape[-1], k_rope.shape[-1])
    run = custom_ops.quantize_groups if _launches(k_nope) else custom_ops.QUANTIZE_GROUPS_OP
    return brand(run(k_nope, k_rope, SCALE_GROUP))


@stage(contracts.pack_index_key)
def pack_index_key(
    k_index: IndexKey[R, Rotated, M],
    row_format: RowFormat[F, ND, RD],
    batch: CpBatch[L],
) -> DenseKvRows[R, F, Rotated, M]:
    """See `dsa_contracts.stages.pack_index_key`. A bf16 key is copied as bytes by torch: there is nothing to compute."""
    if not row_format.is_quantized:
        return brand(k_index.clone(memory_format=torch.contiguous_format).view(torch.uint8))
    width = k_index.shape[-1]
    _require_widths("pack_index_key", width)
    run = custom_ops.quantize_groups if _launches(k_index) else custom_ops.QUANTIZE_GROUPS_OP
    return brand(run(k_index, None, width))


@stage(contracts.select_topk)
def select_topk(
    q_index: IndexQuery[L, Rotated, N],
    head_weights: IndexWeights[L, N],
    pool: KvCache[F],
    causal_lens: CausalLens[Local[L], N],
    request_of_row: RequestOfRow[Local[L], N],
    page_table: PageTable,
    index_topk: int,
    row_format: RowFormat[F, ND, RD],
    batch: CpBatch[L],
) -> TopkIndices[L, N]:
    """See `dsa_contracts.stages.select_topk`. Scores are float32; nothing waits for the host."""
    _require_widths("select_topk", q_index.shape[-1])
    run = custom_ops.best_keys if _launches(q_index) else custom_ops.BEST_KEYS_OP
    tables = (causal_lens, request_of_row, page_table)
    return brand(run(q_index, head_weights, pool, *tables, index_topk, batch.max_seq_len, row_format.is_quantized))


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
    """See `dsa_contracts.stages.attend`. A key that is named twice counts twice."""
    rank = row_format.part("k_nope").count
    group = scale_group_of("attend", row_format)
    _require_widths("attend", rank, q.shape[-1] - rank)
    require_one_of("Triton attend", "q", q.dtype, (torch.bfloat16, torch.float8_e4m3fn))
    require_32_bit_slots("Triton attend", pool.shape[0] * pool.shape[1])
    scales = (softmax_scale, q_scale, kv_scale)
    run = custom_ops.attend if _launches(q) else custom_ops.ATTEND_OP
    tables = (causal_lens, request_of_row, page_table)
    codes = q.view(torch.uint8) if q.dtype == torch.float8_e4m3fn else q
    out, lse = run(codes, pool, topk_indices, *tables, *scales, out_dtype.torch_dtype, rank, group)
    return brand(out), brand(lse)


def _require_widths(user: str, *widths: int) -> None:
    """Refuse widths that are no powers of two: the blocks of a kernel are."""
    for width in widths:
        require_power_of_two(f"Triton {user}", "widths", width)
