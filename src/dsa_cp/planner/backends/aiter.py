"""aiter's MLA on AMD gfx942 and gfx950, as sglang calls it: its fused kernel rotates q and K and writes the cache."""

from dsa_cp.planner.backends.record import Capability, Cited, IntRule, Need, Reading, Rotation

_BACKEND = "sglang 0.5.23 layers/attention/dsa_backend.py"
_FUSED = "aiter `fused_qk_rope_cat_and_cache_mla`, called by sglang 0.5.15 forward_mla.py and 0.5.23 forward_mla_rocm.py"
_BYPASS = "bypassed in sglang 0.5.23 forward_mla_rocm.py for DCP decode and in sgl-project/sglang#32098 for CP prefill"

AITER = Capability(
    name="aiter",
    kernel="aiter `mla_decode_fwd`, one row a sequence",
    reads=(
        Reading("bf16", ("prefill", "decode"), ("bf16",), "one", f"{_BACKEND} `_forward_aiter_extend`, `_forward_aiter`"),
        Reading(
            "fp8",
            ("prefill", "decode"),
            ("bf16", "e4m3"),
            "layer",
            f"{_BACKEND} `_forward_aiter_extend`: kv_scale is layer.k_scale, q_scale 1; the fused kernel makes e4m3 queries",
        ),
    ),
    rotates=(
        Rotation("bf16", "cache write", can_bypass=True, source=f"{_FUSED}; {_BYPASS}"),
        Rotation("fp8", "cache write", can_bypass=True, source=f"{_FUSED}; {_BYPASS}"),
    ),
    needs=(
        Need("page_table_1", "slot of each top-k entry, -1 for none, row by row in q's order", _BACKEND),
        Need("kv_indptr", "where each row's slots begin: one entry more than q has rows", _BACKEND),
    ),
    halves_strides=Cited(
        "Contiguous", "unknown: 0.5.15 `set_mla_kv_buffer_triton_fp8_quant` passes row strides, the fused kernel was not read"
    ),
    zero_length_rows=Cited(value=False, source="unknown"),
    lse=Cited("not returned", "unknown whether mla_decode_fwd can; sglang takes the output alone"),
    topk_widths=Cited((), f"any: {_BACKEND} `get_valid_kv_indices` compacts the entries"),
    block_table_widths=Cited((), f"{_BACKEND}: takes none, slots are listed"),
    page_sizes=Cited((), f"{_BACKEND}: the pool is viewed as pages of one slot"),
    head_counts=Cited(
        (IntRule(1, 16, divides=16), IntRule(16, 128, multiple_of=16)),
        f"{_BACKEND} `__init__`: multiples of 16 from 16 to 128, fewer are repeated up to 16",
    ),
    devices=Cited(("gfx942", "gfx950"), "sgl-project/sglang#32098 (gfx950); gfx942 is our reading of sglang's HIP path"),
    layouts=Cited((), "our reading: rows are independent, so any order of them will do"),
    context_parallel=Cited(
        ("prefill",), "sgl-project/sglang#32098 runs it; sglang 0.5.23 refuses CP on HIP for all but DeepSeek-V4"
    ),
)
