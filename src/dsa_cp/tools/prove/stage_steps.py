"""The stage calls of a layer: which stage, and where each of its tensors comes from.

A placement's calls are the moves of the planner's legal paths; what stands around them in every layer is written down here.
A test runs a layer with every placement and compares the calls that it makes, and who made each argument, with these.

A source is `inputs.X` (`LayerInputs`), `local.X` (`LocalBatch`), `batch.X` (`CpBatch`), `setting.X`, `pools.kv`,
`pools.index`, or `stage.X`: what the last call of that stage returned.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args, get_origin

from dsa_contracts.core.errors import ContractDefinitionError
from dsa_contracts.dsa.states import Bf16Row, Packed, PackedRowStride
from dsa_cp.planner.moves import Move, flowing
from dsa_cp.planner.search import Path


@dataclass(frozen=True)
class Step:
    """One call of a stage.

    Attributes:
        stage: name of the stage.
        sources: where each tensor argument comes from: (parameter, source).
        row_format: mark of the row format, `kv` for that of the pool, `index` for the indexer's, or None.
        strides: the class of strides that is asked for, where the stage takes one.
    """

    stage: str
    sources: tuple[tuple[str, str], ...]
    row_format: object = None
    strides: object = None


_STANDING = {"pool": "pools.kv", "cos_sin_cache": "setting.cos_sin_cache"}
"""What a placement is given besides rows and the batch."""


def placement_steps(path: Path) -> tuple[Step, ...]:
    """Return the calls of a placement."""
    return tuple(_step_of(move) for move in path.moves)


def _step_of(move: Move) -> Step:
    """Return a move as a call; raises ContractDefinitionError DSA001 where an argument comes from nowhere."""
    contract = move.contract
    sources = {name: f"{held.maker}.{held.name}" for name, held in zip(flowing(contract), move.taken, strict=True)}
    sources |= dict(move.sources)
    for param in contract.params:
        if param.spec is not None and param.name not in sources:
            if param.name not in _STANDING:
                raise ContractDefinitionError(f"{contract.name}: nothing says where {param.name} comes from")
            sources[param.name] = _STANDING[param.name]
    return Step(contract.name, tuple(sources.items()), next(_formats_of(move), None), move.strides)


def _formats_of(move: Move) -> Iterator[object]:
    """Yield the marks of the row formats of what a move takes and makes."""
    for held in (*move.taken, *move.made):
        if get_origin(held.spec.state) is Packed:
            yield get_args(held.spec.state)[0]


def _step(stage: str, row_format: object = None, strides: object = None, /, **sources: str) -> Step:
    return Step(stage, tuple(sources.items()), row_format, strides)


def _apply_rope(x: str) -> Step:
    return _step("apply_rope", x=x, positions="rebuild_positions.positions", cos_sin_cache="setting.cos_sin_cache")


BATCH_STEPS = (
    _step("rebuild_positions", positions="batch.positions", rows="local.rows"),
    _step("reorder_causal_lens", causal_lens="batch.causal_lens", rows="local.rows"),
)
"""Once per batch."""


def indexer_steps(placement: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the calls of every layer before its placement: the indexer's rows go the way that the placement goes."""
    placed: tuple[Step, ...] = (
        _step("all_gather_kv", "index", kv="pack_index_key.index_kv"),
        _step("write_kv", "index", pool="pools.index", kv="all_gather_kv.gathered", loc="batch.rank_major_loc"),
    )
    if any(step.stage == "gather_write_kv" for step in placement):
        written = {"pool": "pools.index", "kv": "pack_index_key.index_kv", "loc": "batch.rank_major_loc"}
        placed = (_step("gather_write_kv", "index", **written),)
    return (
        _apply_rope("inputs.k_index"),
        _step("pack_index_key", "index", k_index="apply_rope.rotated"),
        *placed,
        _apply_rope("inputs.q_index"),
        _step(
            "select_topk",
            "index",
            q_index="apply_rope.rotated",
            head_weights="inputs.head_weights",
            pool="pools.index",
            causal_lens="reorder_causal_lens.local_causal_lens",
            request_of_row="local.request_of_row",
            page_table="batch.page_table",
        ),
    )


def attend_step(placement: tuple[Step, ...]) -> Step:
    """Return the call that ends a layer: it takes the queries that the placement made."""
    return _step(
        "attend",
        "kv",
        q="merge_q.q" if any(step.stage == "merge_q" for step in placement) else "rope_quantize.q",
        pool="pools.kv",
        topk_indices="select_topk.topk_indices",
        causal_lens="reorder_causal_lens.local_causal_lens",
        request_of_row="local.request_of_row",
        page_table="batch.page_table",
    )


GATHER_BEFORE_ROPE = (
    _step("pack_kv", Bf16Row, k_nope="inputs.k_nope", k_rope="inputs.k_rope"),
    _step("all_gather_kv", Bf16Row, kv="pack_kv.kv"),
    _step("restore_order", gathered="all_gather_kv.gathered"),
    _step("split_kv", Bf16Row, PackedRowStride, kv="restore_order.restored"),
    _step(
        "rope_quantize",
        q_nope="inputs.q_nope",
        q_rope="inputs.q_rope",
        k_nope="split_kv.k_nope",
        k_rope="split_kv.k_rope",
        positions="rebuild_positions.positions",
        cos_sin_cache="setting.cos_sin_cache",
    ),
    _step("write_kv", "kv", pool="pools.kv", kv="rope_quantize.kv", loc="batch.out_cache_loc"),
)
"""What sglang did before sgl-project/sglang#29161, into a pool of flat fp8 rows; no placement."""
