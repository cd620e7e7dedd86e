"""The torch references of this project: they read and take everything that the contracts allow."""

from dsa_cp.planner.backends.record import Capability, Cited, Reading

_STAGE = "dsa_cp.stages.attend"

TORCH_REFERENCE = Capability(
    name="torch_reference",
    kernel=_STAGE,
    reads=(
        Reading("bf16", ("prefill", "decode"), ("bf16",), "one", _STAGE),
        Reading("fp8", ("prefill", "decode"), ("bf16", "e4m3"), "layer", _STAGE),
        Reading("fp8_656", ("prefill", "decode"), ("bf16", "e4m3"), "rows", _STAGE),
    ),
    rotates=(),
    needs=(),
    halves_strides=Cited("PackedRowStride", "dsa_cp.stages.split_kv"),
    zero_length_rows=Cited(value=True, source="invariant empty_rows_are_inert of attend"),
    lse=Cited("returned, -inf for empty rows", "invariant empty_rows_are_inert of attend"),
    topk_widths=Cited((), _STAGE),
    block_table_widths=Cited((), _STAGE),
    page_sizes=Cited((), _STAGE),
    head_counts=Cited((), _STAGE),
    devices=Cited((), "torch, CPU included"),
    layouts=Cited((), _STAGE),
    context_parallel=Cited(("prefill",), "tests/layer/test_placements.py"),
)
