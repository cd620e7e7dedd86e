"""FlashMLA's two sparse kernels: prefill over bf16 rows, decoding over 656-byte rows."""

from dsa_cp.planner.backends.record import Capability, Cited, IntRule, Need, Reading

_BACKEND = "sglang 0.5.23 layers/attention/dsa_backend.py"
_PREFILL = "deepseek-ai/FlashMLA csrc/api/sparse_fwd.h@02fe0d0"
_DECODE = "deepseek-ai/FlashMLA csrc/api/sparse_decode.h@4855c77"
_ANY_ORDER = "our reading: rows are independent, so any order of them will do"

FLASHMLA_SPARSE = Capability(
    name="flashmla_sparse",
    kernel="FlashMLA `flash_mla_sparse_fwd`",
    reads=(
        Reading("bf16", ("prefill", "decode"), ("bf16",), "one", f"{_PREFILL}: q and kv bf16, 576 or 512 wide"),
        Reading(
            "fp8_656",
            ("prefill",),
            ("bf16",),
            "rows",
            f"{_BACKEND} `forward_extend`, ragged transform; in decode its kernel is given the fp8 pool and refuses it",
            converts="dequantises the rows of the batch and its prefixes to bf16 (`dequantize_k_cache_paged_dsa`)",
        ),
    ),
    rotates=(),
    needs=(
        Need(
            "topk_indices_offset",
            "where each row's keys begin among the dequantised ones; as many rows as q has, on each rank",
            f"{_BACKEND} builds it in plain EXTEND only; sgl-project/sglang#20606, #33197",
            phases=("prefill",),
            row_formats=("fp8_656",),
        ),
        Need(
            "page_table_1_flattened",
            "slot of each key to dequantise; upstream builds it with a prefix only, and else attends to K before the write",
            f"{_BACKEND} `init_forward_metadata`",
            phases=("prefill",),
            row_formats=("fp8_656",),
        ),
    ),
    halves_strides=Cited("PackedRowStride", "sglang 0.5.23 mem_cache `set_mla_kv_buffer`: last dim dense, row stride free"),
    zero_length_rows=Cited(
        value=False,
        source="unknown: csrc/sm90/prefill/sparse/phase1.cuh names rows without a valid key, what it stores was not run",
    ),
    lse=Cited("returned", "csrc/sm90/prefill/sparse/phase1.cuh: +inf, and not -inf, for a row without a valid key"),
    topk_widths=Cited(
        (IntRule(low=128, multiple_of=128),),
        "csrc/sm90/prefill/sparse/phase1.cuh: topk % (2 * 64) == 0; same assumed on SM100",
    ),
    block_table_widths=Cited((), f"{_PREFILL}: takes none, indices are slots"),
    page_sizes=Cited((), f"{_PREFILL}: kv is a list of slots"),
    head_counts=Cited(
        (IntRule(1, 64, divides=64), IntRule(128, 128)),
        f"{_PREFILL}: 64 or 128; {_BACKEND} `_forward_flashmla_sparse` pads divisors, to 128 on SM100",
    ),
    devices=Cited(
        ("9.0", "10.0", "10.3"), f"{_PREFILL}: SM90a, SM100f; sgl-flash-mla 1.0.0 on an H200 with use_legacy=True: run"
    ),
    layouts=Cited((), _ANY_ORDER),
    context_parallel=Cited(("prefill",), "sgl-project/sglang#29161: bf16 under CP, measured in both layouts"),
)

FLASHMLA_KV = Capability(
    name="flashmla_kv",
    kernel="FlashMLA `flash_mla_with_kvcache(is_fp8_kvcache=True)`",
    reads=(
        Reading("fp8_656", ("prefill", "decode"), ("bf16",), "rows", f"{_DECODE}: q bf16, 512 + 16 + 128 bytes a token"),
        Reading(
            "bf16",
            ("prefill", "decode"),
            ("bf16",),
            "one",
            f"{_BACKEND} `_forward_flashmla_kv`",
            converts="quantises the whole pool to fp8_656 in each layer (`quantize_k_cache`)",
        ),
    ),
    rotates=(),
    needs=(
        Need("page_table_1", "slot of each top-k entry, -1 for none, row by row in q's order", f"{_BACKEND}"),
        Need("flashmla_metadata", "tile schedule and number of splits, for this rank's rows", f"{_BACKEND}"),
    ),
    halves_strides=Cited(
        "PackedRowStride", "sglang 0.5.23 `quantize_k_cache_separate` copies what is not dense before it quantises"
    ),
    zero_length_rows=Cited(
        value=False, source="vllm-project/vllm#51970, #35969: length 0 gives block -1 and a negative offset"
    ),
    lse=Cited("returned", f"{_DECODE}: natural logarithm; its value for an empty row is not known"),
    topk_widths=Cited((IntRule(low=64, multiple_of=64),), f"{_DECODE}: blocks of 64 entries; a multiple is assumed"),
    block_table_widths=Cited((), "FlashMLA README: with indices the kernel does not read the block table"),
    page_sizes=Cited((IntRule(64, 64),), f"{_BACKEND} `_forward_flashmla_kv`: only page size 64"),
    head_counts=Cited((IntRule(1, 128),), f"{_DECODE}: 64 or 128; {_BACKEND} pads up to the next of them"),
    devices=Cited(("9.0", "10.0", "10.3"), f"{_DECODE}: SM90a, SM100f"),
    layouts=Cited((), _ANY_ORDER),
    context_parallel=Cited(
        ("prefill",), "our reading: each row is a batch entry of its own; sglang's default for fp8 on Hopper, CP included"
    ),
)
