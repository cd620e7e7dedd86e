"""The calls of a layer as the prover knows them: those that a layer makes, and what does not fit is said."""

from collections.abc import Callable
from itertools import count
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import Comm, CpBatch, Layout
from dsa_contracts.core.brands import brand_of
from dsa_contracts.core.contract import contract_of
from dsa_contracts.core.errors import ContractDefinitionError
from dsa_contracts.dsa.states import Bf16Row, Fp8Row, PackedRowStride
from dsa_cp.comm import run_ranks
from dsa_cp.demo.run import Job, new_pools
from dsa_cp.demo.schedule import PrefillBatch, PrefillChunk, Schedule
from dsa_cp.layer import fused_placements, indexer, local_batch, path, placements
from dsa_cp.layer.inputs import cos_sin_cache, draw, shard_inputs
from dsa_cp.layer.kernel_sets import TorchKernels
from dsa_cp.layer.models import MODELS
from dsa_cp.layer.setting import Setting
from dsa_cp.layer.wiring import PLACEMENTS, wire
from dsa_cp.layouts import Interleave, VllmReplicated, VllmZigzag, Zigzag, build_batch
from dsa_cp.planner import make_plan
from dsa_cp.planner.search import legal_paths
from dsa_cp.tools.prove.cut import Cut
from dsa_cp.tools.prove.goals import Fact
from dsa_cp.tools.prove.right import RIGHT
from dsa_cp.tools.prove.stage_fit import layer_fits, placements_fit
from dsa_cp.tools.prove.stage_steps import BATCH_STEPS, GATHER_BEFORE_ROPE, Step, attend_step, indexer_steps, placement_steps
from dsa_cp.tools.prove.terms import INT_LOGIC, Ask

MODEL = MODELS["tiny"]
SCHEDULE = Schedule((PrefillBatch(0, (PrefillChunk(0, 0, 5, (1,)),)),), num_pages=2, page_size=64, cached_tokens=0)
FORMAT_OF = {found.name: found.row_format for found in legal_paths(Zigzag)}

Call = tuple[str, dict[str, str]]

PRODUCERS = {
    "local.rows": "batch.local_rows",
    "local.request_of_row": "batch.local_request_of_row",
    "setting.cos_sin_cache": "cos_sin_cache of model tiny",
    "pools.kv": "pool of layer 0",
    "pools.index": "pool of layer 0",
}


def producer_of(source: str) -> str:
    """Who a brand names as the maker of what comes from a source."""
    return "inputs" if source.startswith("inputs.") else PRODUCERS.get(source, source)


def recorder(function: Callable[..., Any], calls: list[Call]) -> Callable[..., Any]:
    """The same stage, which notes who made its arguments, on rank 0."""
    names = contract_of(function).names

    def recorded(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(names, args, strict=False)) | kwargs
        if given["batch"].cp_rank == 0:
            brands = {name: brand_of(value) for name, value in given.items() if isinstance(value, Tensor)}
            makers = {name: "" if brand is None else brand.kind.producer for name, brand in brands.items()}
            calls.append((function.__name__, makers))
        return function(*args, **kwargs)

    return recorded


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """The stage calls of rank 0, in order."""
    found: list[Call] = []
    owners: tuple[ModuleType | type, ...] = (local_batch, indexer, placements, fused_placements, path, TorchKernels)
    for owner in owners:
        for name, value in list(vars(owner).items()):
            stage = getattr(value, "__func__", value)
            if callable(stage) and getattr(stage, "__module__", "").startswith("dsa_cp.stages."):
                recorded = recorder(stage, found)
                monkeypatch.setattr(owner, name, recorded if stage is value else staticmethod(recorded))
    return found


def run_layer_with(placement: str) -> None:
    """Run one layer on two ranks."""
    plan = make_plan("torch_reference", FORMAT_OF[placement], layout="zigzag", cp_size=2, placement=placement)
    job = Job(MODEL, SCHEDULE, Zigzag(), wire(plan, MODEL), 1, 0)

    def body(comm: Comm) -> None:
        batch: CpBatch[Any] = build_batch(
            Zigzag(),
            2,
            comm.rank,
            [5],
            out_cache_loc=torch.arange(64, 69),
            page_table=torch.tensor([[1]], dtype=torch.int32),
        )
        MODEL.bind(batch)
        local = local_batch.local_batch(batch)
        view = batch.at_layer(0)
        setting: Setting[Any, Any] = Setting(
            MODEL, view, local, comm, cos_sin_cache(MODEL, 8, torch.device("cpu")), job.wiring.quant_scale
        )
        drawn = draw(MODEL, batch.nnz, 0, 0, 0, torch.device("cpu"))
        path.run_layer(shard_inputs(drawn, MODEL, local, view), setting, new_pools(job, 0), job.wiring)

    run_ranks(2, body)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_layer_makes_the_calls_that_are_proven_to_fit(placement: str, calls: list[Call]) -> None:
    run_layer_with(placement)
    (found,) = (each for each in legal_paths(Zigzag) if each.name == placement)
    between = placement_steps(found)
    steps = (*BATCH_STEPS, *indexer_steps(between), *between, attend_step(between))
    assert calls == [(step.stage, {name: producer_of(source) for name, source in step.sources}) for step in steps]


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


def faults(steps: tuple[Step, ...], kv_format: str) -> list[tuple[str, str, Any, Any]]:
    """What does not fit in a placement's calls: where, what, what it says and what is right."""
    goals = layer_fits("made up", steps, kv_format, int_cut(Zigzag()), numbers())
    wrong: list[tuple[str, Fact]] = [(goal.about, fact) for goal in goals for fact in goal.facts if not fact.claim]
    return [(about.removeprefix("made up, "), fact.what, fact.says, fact.right) for about, fact in wrong]


def steps_of(placement: str) -> tuple[Step, ...]:
    (found,) = (each for each in legal_paths(Zigzag) if each.name == placement)
    return placement_steps(found)


def with_source(steps: tuple[Step, ...], stage: str, name: str, source: str) -> tuple[Step, ...]:
    """The calls with another source for one argument of a stage."""
    return tuple(
        Step(step.stage, tuple({**dict(step.sources), name: source}.items()), step.row_format, step.strides)
        if step.stage == stage
        else step
        for step in steps
    )


def test_k_of_all_ranks_does_not_fit_queries_of_one() -> None:
    found = faults(GATHER_BEFORE_ROPE, "fp8")
    where = "rope_quantize with nnz_local rows"
    assert (where, "dim 0 of k_nope, nnz where it was made, N in the stage", 8, 5) in found
    assert (where, "k_nope: rows", "Global[Sequence]", "Local[Zigzag]") in found


def test_rows_as_gathered_do_not_go_to_slots_in_sequence_order() -> None:
    found = faults(with_source(steps_of("rope_gather"), "write_kv", "loc", "batch.out_cache_loc"), "bf16")
    where = "write_kv with nnz_local rows"
    assert found[:2] == [
        (where, "dim 0 of loc, nnz where it was made, G in the stage", 8, 16),
        (where, "loc: rows", "Global[Sequence]", "Global[RankMajor[Zigzag]]"),
    ]


def test_raw_k_does_not_reach_the_pool() -> None:
    found = faults(with_source(steps_of("rope_gather"), "pack_kv", "k_rope", "inputs.k_rope"), "bf16")
    assert ("write_kv with nnz_local rows", "kv: state", "Packed[Bf16Row, Raw]", "Packed[Bf16Row, Rotated]") in found


def test_positions_of_this_rank_do_not_fit_gathered_k() -> None:
    found = faults(with_source(steps_of("gather_rope"), "apply_rope", "positions", "rebuild_positions.positions"), "bf16")
    assert ("apply_rope with nnz_local rows", "positions: rows", "Local[Zigzag]", "Global[Sequence]") in found


def test_rows_of_one_format_do_not_fit_a_pool_of_another() -> None:
    found = faults(steps_of("rope_quantize_gather"), "bf16")
    assert found[:2] == [
        ("write_kv with nnz_local rows", "dim 2 of pool, row_bytes where it was made, row_bytes in the stage", 1152, 576),
        ("write_kv with nnz_local rows", "pool: state", "Packed[Bf16Row, Rotated]", "Packed[Fp8Row, Rotated]"),
    ]


def test_rows_packed_in_one_format_are_not_split_by_another() -> None:
    steps = (
        Step("pack_kv", (("k_nope", "inputs.k_nope"), ("k_rope", "inputs.k_rope")), Bf16Row),
        Step("split_kv", (("kv", "pack_kv.kv"),), Fp8Row, PackedRowStride),
        *steps_of("rope_gather"),
    )
    found = faults(steps, "bf16")
    assert ("split_kv with nnz_local rows", "kv: state", "Packed[Bf16Row, Raw]", "Packed[Fp8Row, P]") in found


def test_an_argument_from_nowhere_is_an_error_and_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsa_cp.tools.prove.stage_steps._STANDING", {"pool": "pools.kv"})
    with pytest.raises(ContractDefinitionError) as error:
        steps_of("rope_gather")
    assert error.value.headline == "apply_rope: nothing says where cos_sin_cache comes from"
