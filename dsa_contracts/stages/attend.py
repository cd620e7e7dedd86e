"""Contract of `attend`."""

from dsa_contracts.core.contract import contract
from dsa_contracts.core.invariant import Call, Invariant
from dsa_contracts.core.marks import BF16, E4M3, F32
from dsa_contracts.dsa.aliases import (
    AttentionLse,
    AttentionOut,
    CausalLens,
    KvCache,
    PageTable,
    Query,
    RequestOfRow,
    TopkIndices,
)
from dsa_contracts.dsa.batch import CpBatch
from dsa_contracts.dsa.invariants import (
    empty_rows_are_inert,
    local_values_match_rows,
    page_size_is_the_batch_page_size,
    page_table_covers_batch,
    page_table_is_the_batchs,
    pages_are_in_pool,
    pages_have_one_writer,
    row_width_matches_format,
    scale_is_one_unless_a_layer_has_one,
    scale_is_positive,
    topk_is_in_range,
)
from dsa_contracts.dsa.invariants.reading import row_format_of
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.states import Local
from dsa_contracts.dsa.typevars import AD, ND, QD, RD, F, L, N

_QUERY_DTYPES = (BF16, E4M3, F32)
_OUT_DTYPES = (BF16, F32)


def query_is_as_wide_as_a_key() -> Invariant:
    """A query has as many elements as the latent and the rope part of a row have together."""

    def check(call: Call) -> str | None:
        got = call.tensor("q").shape[-1]
        want = sum(part.count for part in row_format_of(call).value_parts)
        return None if got == want else f"q is {got} wide, the values of a row of {row_format_of(call).name} are {want}"

    return Invariant("query_is_as_wide_as_a_key", "DSA124", "q", "q has as many elements as a key", False, check)


def dtypes_hold_values() -> Invariant:
    """Queries and outputs are values, and no bytes or indices that happen to have the shape."""

    def check(call: Call) -> str | None:
        if call.tensor("q").dtype not in [mark.torch_dtype for mark in _QUERY_DTYPES]:
            return f"q is {call.tensor('q').dtype}"
        out = call.shown("out_dtype")
        return None if out in _OUT_DTYPES else f"out_dtype is {getattr(out, '__name__', out)}"

    statement = "q is bf16, e4m3 or f32; out_dtype is BF16 or F32"
    return Invariant("dtypes_hold_values", "DSA103", "q", statement, False, check)


def query_scale_is_one_unless_quantized() -> Invariant:
    """A query that is not e4m3 has no scale, whatever the rows have."""

    def check(call: Call) -> str | None:
        scale, dtype = call.number("q_scale"), call.tensor("q").dtype
        return None if scale == 1.0 or dtype == E4M3.torch_dtype else f"q_scale is {scale}, and q is not quantised"

    statement = "q_scale: 1 where q is not e4m3"
    return Invariant("query_scale_is_one_unless_quantized", "DSA112", "q_scale", statement, False, check)


@contract(
    returns=("out", "lse"),
    requires=(
        dtypes_hold_values(),
        row_width_matches_format("pool"),
        query_is_as_wide_as_a_key(),
        page_size_is_the_batch_page_size("pool"),
        page_table_covers_batch(),
        scale_is_positive("softmax_scale", "q_scale", "kv_scale"),
        scale_is_one_unless_a_layer_has_one("kv_scale"),
        query_scale_is_one_unless_quantized(),
        pages_are_in_pool("pool"),
        page_table_is_the_batchs(),
        pages_have_one_writer(),
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
    flow=(("q", "out"), ("pool", "out")),
    sources=(
        ("topk_indices", ("select_topk.topk_indices",)),
        ("causal_lens", ("reorder_causal_lens.local_causal_lens",)),
        ("request_of_row", ("batch.local_request_of_row",)),
        ("page_table", ("batch.page_table",)),
    ),
)
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
        kv_scale: value of a flat fp8 row = code * kv_scale; 1 for `bf16`, and for `fp8_656`, whose rows carry their scales.
        out_dtype: dtype of `out`.
        row_format: the format of the pool's rows.
        batch: the batch.

    Returns:
        out: attention output in the latent space, 0 for a row that attends to nothing. What is in a key that a row does not
            attend to, NaN included, does not reach it.
        lse: natural logarithm of the softmax denominator, -inf for such a row.

    Row order: local order, that of `q`. Aliasing: new memory. Sync: none in kernels; the reference loops over requests on the
    host. Every row of both outputs is written.

    Raises:
        StageInputError: DSA101 to DSA110, DSA112, DSA114, DSA117, DSA118, DSA119, DSA124, DSA125.
        StageOutputError: DSA121.

    Source: flashinfer `trtllm_batch_decode_with_kv_cache_mla` (sparse), FlashMLA `flash_mla_sparse_fwd`; transformers
        5.24.0 `DeepseekV32Attention` for the numbers.
    """
