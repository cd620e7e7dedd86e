"""Contract of `attend`."""

from dsa_contracts.batch import CpBatch
from dsa_contracts.dims import (
    IndexTopk,
    KvLoraRank,
    MaxPages,
    NumLocalHeads,
    NumPages,
    NumRequests,
    PageSize,
    QkHeadDim,
    RowBytes,
)
from dsa_contracts.formats import RowFormat
from dsa_contracts.invariants import (
    empty_rows_are_inert,
    local_values_match_rows,
    page_size_is_the_batch_page_size,
    page_table_covers_batch,
    pages_are_in_pool,
    row_width_matches_format,
    scale_is_one_unless_quantized,
    scale_is_positive,
    topk_is_in_range,
)
from dsa_contracts.records import contract
from dsa_contracts.states import F32, I32, U8, Contiguous, Local, Packed, PerRequest, Plain, Pool, Rotated
from dsa_contracts.tensors import Ten
from dsa_contracts.typevars import AD, ND, QD, RD, F, L, N


@contract(
    returns=("out", "lse"),
    requires=(
        row_width_matches_format("pool"),
        page_size_is_the_batch_page_size("pool"),
        page_table_covers_batch(),
        scale_is_positive("softmax_scale", "q_scale", "kv_scale"),
        scale_is_one_unless_quantized("q_scale", "kv_scale"),
        pages_are_in_pool("pool"),
        local_values_match_rows("causal_lens", "causal_lens", "DSA117", "causal_lens_match_rows"),
        local_values_match_rows("request_of_row", "request_of_row", "DSA119", "requests_match_rows"),
        topk_is_in_range(),
    ),
    ensures=(empty_rows_are_inert(),),
    advice=(
        (
            "DSA102",
            "q, topk_indices, causal_lens and request_of_row are this rank's rows, one each; nothing broadcasts",
        ),
        ("DSA106", "per-row tensors must be in q's order: reorder_causal_lens makes them so"),
        ("DSA107", "q must be rotated, once, by the stage that its placement names"),
        ("DSA112", "a bf16 cache has no scale, whatever the checkpoint carries"),
        ("DSA118", "map entries past the row's length to -1 before attending"),
    ),
)
def attend(
    q: Ten[Local[L], Rotated, QD, Contiguous, N, NumLocalHeads, QkHeadDim],
    pool: Ten[Pool, Packed[F, Rotated], U8, Contiguous, NumPages, PageSize, RowBytes],
    topk_indices: Ten[Local[L], Plain, I32, Contiguous, N, IndexTopk],
    causal_lens: Ten[Local[L], Plain, I32, Contiguous, N],
    request_of_row: Ten[Local[L], Plain, I32, Contiguous, N],
    page_table: Ten[PerRequest, Plain, I32, Contiguous, NumRequests, MaxPages],
    softmax_scale: float,
    q_scale: float,
    kv_scale: float,
    out_dtype: type[AD],
    row_format: RowFormat[F, ND, RD],
    batch: CpBatch[L],
) -> tuple[
    Ten[Local[L], Plain, AD, Contiguous, N, NumLocalHeads, KvLoraRank],
    Ten[Local[L], Plain, F32, Contiguous, N, NumLocalHeads],
]:
    """Sparse MLA: each row attends to the keys of its own request that `topk_indices` names.

    Args:
        q: merged queries, latent then rope.
        pool: the layer's KV pool.
        topk_indices: positions inside the row's request; -1: none. An entry of at least `causal_lens` attends to nothing.
        causal_lens: keys that each row may see; 0 for padding.
        request_of_row: request of each row.
        page_table: pages of each request.
        softmax_scale: multiplies q . k.
        q_scale: value of q = code * q_scale.
        kv_scale: value of a flat fp8 row = code * kv_scale; 1 for `bf16`. For `fp8_656` it comes on top of the row's scales.
        out_dtype: dtype of `out`.
        row_format: the format of the pool's rows.
        batch: the batch.

    Returns:
        out: attention output in the latent space, 0 for a row that attends to nothing.
        lse: natural logarithm of the softmax denominator, -inf for such a row.

    Row order: local order, that of `q`. Aliasing: new memory. Sync: none. Every row of both outputs is written.

    Raises:
        StageInputError: DSA102 to DSA112, DSA114, DSA117, DSA118, DSA119.
        StageOutputError: DSA121.

    Source: flashinfer `trtllm_batch_decode_with_kv_cache_mla` (sparse), FlashMLA `flash_mla_sparse_fwd`; transformers
        5.24.0 `DeepseekV32Attention` for the numbers.
    """
