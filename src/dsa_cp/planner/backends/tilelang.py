"""tilelang's sparse MLA on CUDA, as sglang calls it.

On gfx95x sglang rotates and writes K for it with aiter's fused kernel: plan that as `aiter`.
"""

from dsa_cp.planner.backends.record import Capability, Cited, IntRule, Need, Reading

_KERNEL = "sglang 0.5.23 kernels/ops/attention/dsa/tilelang_kernel.py"
_BACKEND = "sglang 0.5.23 layers/attention/dsa_backend.py"

TILELANG = Capability(
    name="tilelang",
    kernel="sglang `tilelang_sparse_fwd`",
    reads=(
        Reading("bf16", ("prefill", "decode"), ("bf16",), "one", f"{_KERNEL} `sparse_attention_fwd_kernel_v2`"),
        Reading(
            "fp8",
            ("prefill", "decode"),
            ("bf16", "e4m3"),
            "one",
            f"{_KERNEL} `sparse_mla_fwd_decode_partial_fp8`: takes no scale, casts q to the pool's dtype; not in 0.5.15",
        ),
    ),
    rotates=(),
    needs=(Need("page_table_1", "slot of each top-k entry, -1 for none, row by row in q's order", f"{_BACKEND}"),),
    halves_strides=Cited("PackedRowStride", "sglang 0.5.23 mem_cache `set_mla_kv_buffer`: last dim dense, row stride free"),
    zero_length_rows=Cited(
        value=False, source="unknown: the kernel starts its maximum at -2**30, the sum of no key was not run"
    ),
    lse=Cited("not returned", f"{_KERNEL} `tilelang_sparse_fwd` returns the output alone"),
    topk_widths=Cited((IntRule(low=64, multiple_of=64),), f"{_KERNEL}: topk % 64 == 0 (0.5.15: exactly 2048)"),
    block_table_widths=Cited((), f"{_KERNEL}: takes none, indices are slots"),
    page_sizes=Cited((), f"{_KERNEL}: kv is a list of slots"),
    head_counts=Cited(
        (IntRule(1, 16), IntRule(32, 64, multiple_of=16), IntRule(low=128, multiple_of=64)),
        f"{_KERNEL}: up to 16 or multiples of 16 (fp8); above 64 multiples of 64 (bf16)",
    ),
    devices=Cited(
        ("8.9", "9.0", "10.0", "10.3", "12.0"),
        "sglang 0.5.23 arg_groups/overrides.py `_check_dsa_backend_constraints`: SM89 or newer for fp8; assumed for bf16",
    ),
    layouts=Cited((), "our reading: rows are independent, so any order of them will do"),
    context_parallel=Cited(("prefill",), "our reading: each row has indices of its own; no run under CP is known"),
)
