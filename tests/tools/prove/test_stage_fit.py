"""The calls of a layer as the prover knows them: those that a layer makes, and what does not fit is said."""

from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from dsa_contracts import Layout, unchecked
from dsa_contracts.core.errors import ContractDefinitionError
from dsa_contracts.core.marks import F32
from dsa_contracts.dsa.states import Bf16Row, Fp8Row, IndexBf16Row, PackedRowStride
from dsa_cp.demo.run import AnyLayer
from dsa_cp.layer.placements import PLACEMENTS
from dsa_cp.layouts import Interleave, VllmReplicated, VllmZigzag, Zigzag
from dsa_cp.planner.moves import Move, flowing
from dsa_cp.planner.search import Path, legal_paths
from dsa_cp.tools.prove.cut import Cut
from dsa_cp.tools.prove.goals import Fact
from dsa_cp.tools.prove.right import RIGHT
from dsa_cp.tools.prove.stage_fit import layer_fits, placements_fit
from dsa_cp.tools.prove.stage_steps import Example, StageCall, early_gather_steps, layer_steps, recorded_steps
from dsa_cp.tools.prove.terms import INT_LOGIC, Ask


def test_the_calls_of_a_layer_are_recorded_with_where_each_argument_comes_from() -> None:
    rope, index, kv = ("x", "positions", "cos_sin_cache"), ("row_format", IndexBf16Row), ("row_format", Bf16Row)
    at, table = "rebuild_positions.positions", "setting.cos_sin_cache"
    choose = ("q_index", "head_weights", "pool", "causal_lens", "request_of_row", "page_table")
    attend = ("q", "pool", "topk_indices", "causal_lens", "request_of_row", "page_table")
    facts = ("reorder_causal_lens.local_causal_lens", "local.request_of_row", "batch.page_table")
    expected: list[tuple[str, dict[str, str], tuple[tuple[str, object], ...]]] = [
        ("rebuild_positions", {"positions": "batch.positions", "rows": "local.rows"}, ()),
        ("reorder_causal_lens", {"causal_lens": "batch.causal_lens", "rows": "local.rows"}, ()),
        ("apply_rope", dict(zip(rope, ("inputs.k_index", at, table), strict=True)), ()),
        ("pack_index_key", {"k_index": "apply_rope.rotated"}, (index,)),
        ("apply_rope", dict(zip(rope, ("inputs.k_rope", at, table), strict=True)), ()),
        ("pack_kv", {"k_nope": "inputs.k_nope", "k_rope": "apply_rope.rotated"}, (kv,)),
        ("all_gather_kv", {"kv": "pack_index_key.index_kv"}, (index,)),
        ("write_kv", {"pool": "cache.index", "kv": "all_gather_kv.gathered", "loc": "batch.rank_major_loc"}, (index,)),
        ("all_gather_kv", {"kv": "pack_kv.kv"}, (kv,)),
        ("write_kv", {"pool": "cache.kv", "kv": "all_gather_kv.gathered", "loc": "batch.rank_major_loc"}, (kv,)),
        ("apply_rope", dict(zip(rope, ("inputs.q_rope", at, table), strict=True)), ()),
        ("merge_q", {"q_nope": "inputs.q_nope", "q_rope": "apply_rope.rotated"}, ()),
        ("apply_rope", dict(zip(rope, ("inputs.q_index", at, table), strict=True)), ()),
        (
            "select_topk",
            dict(zip(choose, ("apply_rope.rotated", "inputs.head_weights", "cache.index", *facts), strict=True)),
            (index,),
        ),
        (
            "attend",
            dict(zip(attend, ("merge_q.q", "cache.kv", "select_topk.topk_indices", *facts), strict=True)),
            (("out_dtype", F32), kv),
        ),
    ]
    assert [(step.stage, dict(step.sources), step.marks) for step in layer_steps("rope_gather")] == expected


EXAMPLES = [
    Example(Zigzag(), 2, (5, 3)),
    Example(Interleave(2), 3, (1,)),
    Example(VllmZigzag(), 2, (9, 4)),
    Example(Zigzag(), 2, (5,), padded=True),
]
"""Several ranks, an empty rank, several requests, padding rows."""


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_layer_makes_the_same_calls_for_every_batch_group_and_layout(placement: str) -> None:
    for example in EXAMPLES:
        assert recorded_steps(placement, example) == layer_steps(placement), example


def moved(move: Move, stage: str) -> tuple[str, dict[str, str]]:
    """A move of the search as the layer makes it: the indexer's rows go along where one collective takes both keys."""
    sources = {name: f"{held.maker}.{held.name}" for name, held in zip(flowing(move.contract), move.taken, strict=True)}
    sources |= dict(move.sources)
    standing = {"pool": "cache.kv", "cos_sin_cache": "setting.cos_sin_cache"}
    if stage != move.contract.name:
        sources |= {"index_pool": "cache.index", "index_kv": "pack_index_key.index_kv"}
    names = {param.name for param in move.contract.params}
    return stage, sources | {name: source for name, source in standing.items() if name in names}


@pytest.mark.parametrize("path", legal_paths(Zigzag), ids=lambda path: path.name)
def test_what_the_search_found_is_what_the_layer_calls_argument_by_argument(path: Path) -> None:
    calls = [(step.stage, dict(step.sources)) for step in layer_steps(path.name)]
    own = [
        call
        for call in calls[4:-3]
        if call[1].get("kv") != "pack_index_key.index_kv" and call[1].get("pool") != "cache.index"
    ]
    both = {"gather_write_kv": "gather_write_kv_and_index"}
    assert own == [moved(move, both.get(move.contract.name, move.contract.name)) for move in path.moves]


def test_every_placement_that_runs_is_proven() -> None:
    for layout in (Zigzag, Interleave, VllmZigzag, VllmReplicated):
        assert {each.name for each in legal_paths(layout)} == set(PLACEMENTS)


def int_cut(layout: Layout) -> Cut:
    return Cut(layout, 2, (5, 3), (0, 2), (6, 3), 4, INT_LOGIC, RIGHT)


def numbers() -> Ask:
    """Sizes that no batch decides, each another one; the rank is 1."""
    unused = count(1001)

    def ask(name: str, least: int | None = None) -> int:
        return 1 if name == "cp_rank" else next(unused)

    return ask


@pytest.mark.parametrize("layout", [Zigzag(), Interleave(2), VllmZigzag(), VllmReplicated()], ids=lambda layout: layout.name)
def test_every_fact_of_every_placement_holds_on_ints(layout: Layout) -> None:
    goals = list(placements_fit(int_cut(layout), numbers()))
    assert len(goals) > 100
    assert [fact for goal in goals for fact in goal.facts if not fact.claim] == []


def faults(steps: tuple[StageCall, ...], kv_format: str) -> list[tuple[str, str, Any, Any]]:
    """What does not fit in a placement's calls: where, what, what it says and what is right."""
    goals = layer_fits("made up", steps, kv_format, int_cut(Zigzag()), numbers())
    wrong: list[tuple[str, Fact]] = [(goal.about, fact) for goal in goals for fact in goal.facts if not fact.claim]
    return [(about.removeprefix("made up, "), fact.what, fact.says, fact.right) for about, fact in wrong]


def with_source(steps: tuple[StageCall, ...], stage: str, name: str, was: str, source: str) -> tuple[StageCall, ...]:
    """The calls with another source for one argument of a stage, in the call where it had the one that is given."""
    (at,) = (place for place, step in enumerate(steps) if step.stage == stage and (name, was) in step.sources)
    sources = {**dict(steps[at].sources), name: source}
    return (*steps[:at], replace(steps[at], sources=tuple(sources.items())), *steps[at + 1 :])


def test_k_of_all_ranks_does_not_fit_queries_of_one() -> None:
    found = faults(early_gather_steps(), "fp8")
    where = "rope_quantize with nnz_local rows"
    assert (where, "dim 0 of k_nope, nnz where it was made, N in the stage", 8, 5) in found
    assert (where, "k_nope: rows", "Global[Sequence]", "Local[Zigzag]") in found


def test_rows_as_gathered_do_not_go_to_slots_in_sequence_order() -> None:
    steps = layer_steps("rope_gather")
    (at,) = (place for place, step in enumerate(steps) if ("pool", "cache.kv") in step.sources and step.stage == "write_kv")
    wrong = with_source(steps[at : at + 1], "write_kv", "loc", "batch.rank_major_loc", "batch.out_cache_loc")
    found = faults((*steps[:at], *wrong, *steps[at + 1 :]), "bf16")
    where = "write_kv with nnz_local rows"
    assert found[:2] == [
        (where, "dim 0 of loc, nnz where it was made, G in the stage", 8, 16),
        (where, "loc: rows", "Global[Sequence]", "Global[RankMajor[Zigzag]]"),
    ]


def test_raw_k_does_not_reach_the_pool() -> None:
    found = faults(
        with_source(layer_steps("rope_gather"), "pack_kv", "k_rope", "apply_rope.rotated", "inputs.k_rope"), "bf16"
    )
    assert ("write_kv with nnz_local rows", "kv: state", "Packed[Bf16Row, Raw]", "Packed[Bf16Row, Rotated]") in found


def test_positions_of_this_rank_do_not_fit_gathered_k() -> None:
    steps = layer_steps("gather_rope")
    found = faults(with_source(steps, "apply_rope", "positions", "batch.positions", "rebuild_positions.positions"), "bf16")
    assert ("apply_rope with nnz_local rows", "positions: rows", "Local[Zigzag]", "Global[Sequence]") in found


def test_rows_of_one_format_do_not_fit_a_pool_of_another() -> None:
    found = faults(layer_steps("rope_quantize_gather"), "bf16")
    where, what = "write_kv with nnz_local rows", "dim 2 of pool, row_bytes where it was made, row_bytes in the stage"
    assert found[:4] == [
        (where, what, 256, 132),
        (where, "pool: state", "Packed[IndexBf16Row, Rotated]", "Packed[IndexFp8Row, Rotated]"),
        (where, what, 1152, 576),
        (where, "pool: state", "Packed[Bf16Row, Rotated]", "Packed[Fp8Row, Rotated]"),
    ]


def test_both_keys_need_their_own_caches_in_the_one_collective() -> None:
    stage = "gather_write_kv_and_index"
    steps = with_source(layer_steps("rope_quantize_gather_write"), stage, "index_pool", "cache.index", "cache.kv")
    what = "dim 2 of index_pool, row_bytes where it was made, index_row_bytes in the stage"
    assert faults(steps, "fp8")[:2] == [
        (f"{stage} with nnz_local rows", what, 576, 132),
        (f"{stage} with nnz_local rows", "index_pool: state", "Packed[Fp8Row, Rotated]", "Packed[IndexFp8Row, Rotated]"),
    ]


def test_rows_packed_in_one_format_are_not_split_by_another() -> None:
    steps = (
        StageCall("pack_kv", (("k_nope", "inputs.k_nope"), ("k_rope", "inputs.k_rope")), (("row_format", Bf16Row),)),
        StageCall("split_kv", (("kv", "pack_kv.kv"),), (("row_format", Fp8Row), ("strides", PackedRowStride))),
        *layer_steps("rope_gather"),
    )
    found = faults(steps, "bf16")
    assert ("split_kv with nnz_local rows", "kv: state", "Packed[Bf16Row, Raw]", "Packed[Fp8Row, P]") in found


def test_an_argument_from_nowhere_is_an_error_and_not_left_out() -> None:
    def on_a_copy(layer: AnyLayer) -> AnyLayer:
        def place(inputs: Any, index_kv: Any, setting: Any, cache: Any, delivery: Any) -> Any:
            copied = replace(inputs, k_rope=inputs.k_rope.clone())
            return layer.route.place(copied, index_kv, setting, cache, delivery)

        return replace(layer, route=replace(layer.route, place=place))

    with unchecked(), pytest.raises(ContractDefinitionError) as error:
        recorded_steps("rope_gather", Example(), on_a_copy)
    assert error.value.headline == "apply_rope: nothing says where x comes from"
