"""FlashAttention 3 with a page table of single slots, as sglang calls it for sparse rows."""

from dsa_cp.planner.backends.record import Capability, Cited, Need, Reading

_BACKEND = "sglang 0.5.23 layers/attention/dsa_backend.py `_forward_fa3`"

FA3 = Capability(
    name="fa3",
    kernel="FlashAttention 3 `flash_attn_with_kvcache(qv=...)`",
    reads=(
        Reading(
            "bf16",
            ("prefill", "decode"),
            ("bf16",),
            "one",
            f"{_BACKEND}: rope and latent part are column slices of the pool in q's dtype; quantised rows are not unpacked",
        ),
    ),
    rotates=(),
    needs=(
        Need("page_table_1", "slot of each top-k entry, valid entries first, row by row in q's order", _BACKEND),
        Need("dsa_cache_seqlens_int32", "valid entries of each row in q's order", _BACKEND),
        Need("dsa_cu_seqlens_q", "0, 1, 2, ...: one more than q has rows", _BACKEND),
        Need("dsa_cu_seqlens_k", "running sum of the rows' lengths", _BACKEND),
    ),
    halves_strides=Cited("PackedRowStride", "sglang 0.5.23 mem_cache `set_mla_kv_buffer`: last dim dense, row stride free"),
    zero_length_rows=Cited(value=False, source="unknown"),
    lse=Cited("not returned", f"{_BACKEND} passes return_softmax_lse=False; what an empty row would get is unknown"),
    topk_widths=Cited((), "unknown, not checked: the page table's width is the top-k width"),
    block_table_widths=Cited((), "unknown, not checked: as above"),
    page_sizes=Cited((), f"{_BACKEND}: the pool is viewed as pages of one slot"),
    head_counts=Cited((), "unknown, not checked"),
    devices=Cited(("9.0",), "sglang 0.5.23 arg_groups/overrides.py: the bf16 decode default below SM100; qv is Hopper's"),
    layouts=Cited((), "our reading: rows are independent, so any order of them will do"),
    context_parallel=Cited(("prefill",), f"our reading: {_BACKEND} treats each row as a sequence of one token"),
)
