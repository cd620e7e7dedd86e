"""The stage calls of a layer, placement by placement: which stage, and where each of its tensors comes from.

A test runs a layer with every placement and compares the calls that it makes, and who made each argument, with this table.

A source is `inputs.X` (`LayerInputs`), `local.X` (`LocalBatch`), `batch.X` (`CpBatch`), `setting.X`, `pools.kv`,
`pools.index`, or `stage.X`: what the last call of that stage returned.
"""

from dataclasses import dataclass

from dsa_contracts.states import PackedRowStride


@dataclass(frozen=True)
class Step:
    """One call of a stage.

    Attributes:
        stage: name of the stage.
        sources: where each tensor argument comes from: (parameter, source).
        row_format: format of the rows: `kv` for that of the pool, `wire` for bf16, `index` for the indexer's, or none.
        strides: the class of strides that is asked for, where the stage takes one.
    """

    stage: str
    sources: tuple[tuple[str, str], ...]
    row_format: str = ""
    strides: type | None = None


def _step(stage: str, row_format: str = "", strides: type | None = None, /, **sources: str) -> Step:
    return Step(stage, tuple(sources.items()), row_format, strides)


def _apply_rope(x: str, positions: str = "rebuild_positions.positions") -> Step:
    return _step("apply_rope", x=x, positions=positions, cos_sin_cache="setting.cos_sin_cache")


def _gather(kv: str, row_format: str) -> Step:
    return _step("all_gather_kv", row_format, kv=kv)


def _write(kv: str, loc: str, row_format: str = "kv", pool: str = "pools.kv") -> Step:
    return _step("write_kv", row_format, pool=pool, kv=kv, loc=loc)


_GATHERED, _SPLIT = "all_gather_kv.gathered", ("split_kv.k_nope", "split_kv.k_rope")
_ROTATED = "apply_rope.rotated"
_QUERIES = (_apply_rope("inputs.q_rope"), _step("merge_q", q_nope="inputs.q_nope", q_rope=_ROTATED))

BATCH_STEPS = (
    _step("rebuild_positions", positions="batch.positions", rows="local.rows"),
    _step("reorder_causal_lens", causal_lens="batch.causal_lens", rows="local.rows"),
)
"""Once per batch."""

INDEXER_STEPS = (
    _apply_rope("inputs.k_index"),
    _step("pack_index_key", "index", k_index=_ROTATED),
    _gather("pack_index_key.index_kv", "index"),
    _write(_GATHERED, "batch.rank_major_loc", "index", "pools.index"),
    _apply_rope("inputs.q_index"),
    _step(
        "select_topk",
        "index",
        q_index=_ROTATED,
        head_weights="inputs.head_weights",
        pool="pools.index",
        causal_lens="reorder_causal_lens.local_causal_lens",
        request_of_row="local.request_of_row",
        page_table="batch.page_table",
    ),
)
"""In every layer, before the placement."""

_FUSED = {
    "q_nope": "inputs.q_nope",
    "q_rope": "inputs.q_rope",
    "positions": "rebuild_positions.positions",
    "cos_sin_cache": "setting.cos_sin_cache",
}

PLACEMENT_STEPS: dict[str, tuple[Step, ...]] = {
    "gather_rope": (
        _step("pack_kv", "kv", k_nope="inputs.k_nope", k_rope="inputs.k_rope"),
        _gather("pack_kv.kv", "kv"),
        _step("restore_order", gathered=_GATHERED),
        _step("split_kv", "kv", PackedRowStride, kv="restore_order.restored"),
        _apply_rope(_SPLIT[1], "batch.positions"),
        _step("pack_kv", "kv", k_nope=_SPLIT[0], k_rope=_ROTATED),
        _write("pack_kv.kv", "batch.out_cache_loc"),
        *_QUERIES,
    ),
    "gather_rope_quantize_rows": (
        _step("pack_kv", "wire", k_nope="inputs.k_nope", k_rope="inputs.k_rope"),
        _gather("pack_kv.kv", "wire"),
        _step("restore_order", gathered=_GATHERED),
        _step("split_kv", "wire", PackedRowStride, kv="restore_order.restored"),
        _apply_rope(_SPLIT[1], "batch.positions"),
        _step("quantize_rows", "kv", k_nope=_SPLIT[0], k_rope=_ROTATED),
        _write("quantize_rows.kv", "batch.out_cache_loc"),
        *_QUERIES,
    ),
    "rope_gather": (
        _apply_rope("inputs.k_rope"),
        _step("pack_kv", "kv", k_nope="inputs.k_nope", k_rope=_ROTATED),
        _gather("pack_kv.kv", "kv"),
        _write(_GATHERED, "batch.rank_major_loc"),
        *_QUERIES,
    ),
    "rope_gather_quantize_rows": (
        _apply_rope("inputs.k_rope"),
        _step("pack_kv", "wire", k_nope="inputs.k_nope", k_rope=_ROTATED),
        _gather("pack_kv.kv", "wire"),
        _step("split_kv", "wire", PackedRowStride, kv=_GATHERED),
        _step("quantize_rows", "kv", k_nope=_SPLIT[0], k_rope=_SPLIT[1]),
        _write("quantize_rows.kv", "batch.rank_major_loc"),
        *_QUERIES,
    ),
    "rope_quantize_gather": (
        _step("rope_quantize", k_nope="inputs.k_nope", k_rope="inputs.k_rope", **_FUSED),
        _gather("rope_quantize.kv", "kv"),
        _write(_GATHERED, "batch.rank_major_loc"),
    ),
    "rope_quantize_rows_gather": (
        _apply_rope("inputs.k_rope"),
        _step("quantize_rows", "kv", k_nope="inputs.k_nope", k_rope=_ROTATED),
        _gather("quantize_rows.kv", "kv"),
        _write(_GATHERED, "batch.rank_major_loc"),
        *_QUERIES,
    ),
}
"""Between the two, by the name in `dsa_cp.wiring.PLACEMENTS`."""

GATHER_BEFORE_ROPE = "gather_before_rope"
"""What sglang did before sgl-project/sglang#29161; no placement."""

ALL_STEPS: dict[str, tuple[Step, ...]] = {
    **PLACEMENT_STEPS,
    GATHER_BEFORE_ROPE: (
        _step("pack_kv", "wire", k_nope="inputs.k_nope", k_rope="inputs.k_rope"),
        _gather("pack_kv.kv", "wire"),
        _step("restore_order", gathered=_GATHERED),
        _step("split_kv", "wire", PackedRowStride, kv="restore_order.restored"),
        _step("rope_quantize", k_nope=_SPLIT[0], k_rope=_SPLIT[1], **_FUSED),
        _write("rope_quantize.kv", "batch.out_cache_loc"),
    ),
}

KV_FORMAT_OF = {
    GATHER_BEFORE_ROPE: "fp8",
    "gather_rope": "bf16",
    "gather_rope_quantize_rows": "fp8_656",
    "rope_gather": "bf16",
    "rope_gather_quantize_rows": "fp8_656",
    "rope_quantize_gather": "fp8",
    "rope_quantize_rows_gather": "fp8_656",
}
"""The pool's row format under each placement."""


def attend_step(placement_steps: tuple[Step, ...]) -> Step:
    """Return the call that ends a layer: it takes the queries that the placement made."""
    stages = [step.stage for step in placement_steps]
    return _step(
        "attend",
        "kv",
        q="merge_q.q" if "merge_q" in stages else "rope_quantize.q",
        pool="pools.kv",
        topk_indices="select_topk.topk_indices",
        causal_lens="reorder_causal_lens.local_causal_lens",
        request_of_row="local.request_of_row",
        page_table="batch.page_table",
    )
