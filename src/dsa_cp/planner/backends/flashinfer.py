"""flashinfer's trtllm-gen sparse MLA, as sglang calls it."""

from dsa_cp.planner.backends.record import Capability, Cited, IntRule, Need, Reading, Rotation

_KERNEL = "flashinfer 0.7.2 `trtllm_batch_decode_with_kv_cache_mla`"
_BACKEND = "sglang 0.5.23 layers/attention/dsa_backend.py"

TRTLLM = Capability(
    name="trtllm",
    kernel='flashinfer `trtllm_batch_decode_with_kv_cache_mla(backend="trtllm-gen")`',
    reads=(
        Reading("bf16", ("prefill", "decode"), ("bf16",), "one", f"{_BACKEND} `_forward_trtllm`: q stays bf16"),
        Reading("fp8", ("prefill", "decode"), ("e4m3",), "layer", f"{_BACKEND} `_forward_trtllm`: bmm1_scale has k_scale"),
    ),
    rotates=(
        Rotation(
            "fp8",
            "quantisation",
            can_bypass=False,
            source=f"{_BACKEND} `_forward_trtllm` calls mla_quantize_and_rope_for_fp8; only models without RoPE bypass it",
        ),
    ),
    needs=(
        Need(
            "page_table_1", "slot of each top-k entry, -1 for none, row by row in q's order", f"{_BACKEND} `_forward_trtllm`"
        ),
        Need(
            "dsa_cache_seqlens_int32",
            "length of each row in q's order: under zigzag not the order of the batch",
            "sglang 0.5.15 `_forward_trtllm` reorders it; 0.5.23 takes it sharded",
        ),
    ),
    halves_strides=Cited(
        "PackedRowStride", "sglang 0.5.23 mem_cache `set_mla_kv_buffer`: last dim dense, row stride free; run on views"
    ),
    zero_length_rows=Cited(
        value=False,
        source="unknown for the kernel. sglang 0.5.23 dsa_dcp.py `fixup_zero_kv_rows` and vllm-project/vllm#46076 repair "
        "such rows after it; sglang fills padding with length 1 (`get_cuda_graph_seq_len_fill_value`)",
    ),
    lse=Cited(
        "returned, -inf for empty rows",
        "sglang 0.5.23 dsa_dcp.py `dcp_trtllm_sparse_attention` with `fixup_zero_kv_rows`; the bare kernel is not known to",
    ),
    topk_widths=Cited(
        (IntRule(low=4, multiple_of=4),), f"{_BACKEND} `_pad_trtllm_sparse_page_table` pads with -1 to a multiple of 4"
    ),
    block_table_widths=Cited(
        (),
        "any: flashinfer 0.6.13 `_check_trtllm_gen_mla_shape` asks for multiples of 128 / page_size in the dense call only, "
        "and flashinfer-ai/flashinfer#3916 dropped that for backend trtllm-gen",
    ),
    page_sizes=Cited((IntRule(32, 32), IntRule(64, 64)), _KERNEL),
    head_counts=Cited((IntRule(1, 64), IntRule(low=128)), f"{_KERNEL}: not 65 to 127"),
    devices=Cited(("10.0", "10.3"), f"{_KERNEL}; sparse on SM12x is another kernel and row format"),
    layouts=Cited((), "our reading: rows are independent, so any order of them will do"),
    context_parallel=Cited(("prefill",), "sgl-project/sglang#29161: measured in both layouts of 0.5.15"),
)
