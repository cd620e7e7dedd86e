"""The search reads the stages' contracts, and what it finds are exactly the placement functions."""

import pytest
import torch

from dsa_contracts import Comm
from dsa_contracts.core.matching import clash_of
from dsa_cp.comm import run_ranks
from dsa_cp.layer.cache import new_cache
from dsa_cp.layer.inputs import draw, shard_inputs
from dsa_cp.layer.kernel_sets import TorchKernels, observed
from dsa_cp.layer.models import MODELS
from dsa_cp.layer.placements import PLACEMENTS
from dsa_cp.layouts import Interleave, VllmReplicated, VllmZigzag, Zigzag, build_batch
from dsa_cp.planner import attention_layer, cache_formats, make_plan
from dsa_cp.planner.catalogue import named_source, stage_contracts
from dsa_cp.planner.choice import Cost, cost_of
from dsa_cp.planner.moves import all_moves, optional_metadata, source_spec, start
from dsa_cp.planner.options import PlanOptions
from dsa_cp.planner.search import RULES, Path, legal_paths

MODEL = MODELS["tiny"]
INDEX_KEY = ("apply_rope", "pack_index_key")
QUERIES = ("apply_rope", "merge_q")

EXPECTED = {
    ("bf16", "gather_rope"): (
        *("pack_kv", "all_gather_kv", "restore_order", "split_kv", "apply_rope", "pack_kv", "write_kv"),
        *QUERIES,
    ),
    ("bf16", "rope_gather"): ("apply_rope", "pack_kv", "all_gather_kv", "write_kv", *QUERIES),
    ("bf16", "rope_gather_write"): ("apply_rope", "pack_kv", "gather_write_kv", *QUERIES),
    ("fp8", "rope_quantize_gather"): ("rope_quantize", "all_gather_kv", "write_kv"),
    ("fp8", "rope_quantize_gather_write"): ("rope_quantize", "gather_write_kv"),
    ("fp8_656", "gather_rope_quantize_rows"): (
        *("pack_kv", "all_gather_kv", "restore_order", "split_kv", "apply_rope", "quantize_rows", "write_kv"),
        *QUERIES,
    ),
    ("fp8_656", "rope_gather_quantize_rows"): (
        *("apply_rope", "pack_kv", "all_gather_kv", "split_kv", "quantize_rows", "write_kv"),
        *QUERIES,
    ),
    ("fp8_656", "rope_quantize_rows_gather"): ("apply_rope", "quantize_rows", "all_gather_kv", "write_kv", *QUERIES),
    ("fp8_656", "rope_quantize_rows_gather_write"): ("apply_rope", "quantize_rows", "gather_write_kv", *QUERIES),
}


def path_named(name: str, layout: type = Zigzag) -> Path:
    """Return a legal path by name."""
    return next(path for path in legal_paths(layout) if path.name == name)


@pytest.mark.parametrize("layout", [Zigzag, Interleave, VllmZigzag, VllmReplicated])
def test_the_search_finds_these_sequences_and_no_other_in_every_layout(layout: type) -> None:
    assert {(path.row_format, path.name): path.stages for path in legal_paths(layout)} == EXPECTED


def calls_of_a_layer(name: str) -> list[str]:
    """Return the stages that a layer with a placement calls, in order."""
    calls: list[str] = []
    kernels, path = observed(TorchKernels, lambda stage, args, result: calls.append(stage)), path_named(name, Interleave)
    plan = make_plan("torch_reference", path.row_format, cp_size=1, placement=name)

    def body(comm: Comm) -> None:
        slots, table = torch.arange(64, 69), torch.tensor([[1]], dtype=torch.int32)
        batch = build_batch(Interleave(), 1, 0, (5,), out_cache_loc=slots, page_table=table)
        layer = attention_layer(batch, MODEL, plan, comm, kernels)
        inputs = shard_inputs(draw(MODEL, 5, 0, 0, 0, batch.device), MODEL, layer.setting.local, batch)
        layer(inputs, new_cache(cache_formats(plan, MODEL), 2, 64), 0)

    run_ranks(1, body)
    return calls


@pytest.mark.parametrize("name", PLACEMENTS)
def test_each_placement_function_calls_the_stages_of_the_path_of_its_name(name: str) -> None:
    before, behind = ["rebuild_positions", "reorder_causal_lens", *INDEX_KEY], ["apply_rope", "select_topk", "attend"]
    calls, path = calls_of_a_layer(name), path_named(name, Interleave)
    assert calls[: len(before)] == before
    assert calls[-len(behind) :] == behind
    of_keys = calls[len(before) : -len(behind)]
    if path.gathers_into_pool:
        # One collective takes both keys; for K it is what the stage of K alone does.
        of_keys[of_keys.index("gather_write_kv_and_index")] = "gather_write_kv"
    else:
        at = of_keys.index("all_gather_kv")
        assert of_keys[at : at + 2] == ["all_gather_kv", "write_kv"], "the indexer's rows"
        del of_keys[at : at + 2]
    assert tuple(of_keys) == path.stages


def test_there_is_a_function_for_every_path_and_a_path_for_every_function() -> None:
    assert {path.name for path in legal_paths(Zigzag)} == set(PLACEMENTS)


def test_at_the_start_the_contracts_allow_four_moves() -> None:
    found = [(move.contract.name, [held.name for held in move.taken]) for move in all_moves(start(Zigzag), Zigzag)]
    assert found == [
        ("apply_rope", ["q_rope"]),
        ("apply_rope", ["k_rope"]),
        ("pack_kv", ["k_nope", "k_rope"]),
        ("rope_quantize", ["q_nope", "q_rope", "k_nope", "k_rope"]),
    ]


def test_every_source_that_a_contract_names_exists_and_fits_in_some_layout() -> None:
    for contract in stage_contracts():
        for name, sources in contract.sources:
            pattern = contract.param(name).spec
            assert pattern is not None
            for source in sources:
                assert clash_of(pattern, source_spec(source, Zigzag), {"L": Zigzag}) is None, (contract.name, source)


def test_every_rows_argument_of_a_stage_flows_or_has_a_source() -> None:
    rows = {"cos_sin_cache", "pool", "index_pool"}
    for contract in stage_contracts():
        known = {name for name, _ in (*contract.flow, *contract.sources)}
        tensors = {param.name for param in contract.params if param.spec is not None} - rows
        assert tensors - known <= {"head_weights"}, contract.name


def test_metadata_that_a_batch_may_lack_is_read_off_the_batch() -> None:
    assert optional_metadata("batch.rank_major_loc") == "rank_major_loc"
    assert optional_metadata("batch.positions") is None
    assert optional_metadata("rebuild_positions.positions") is None
    assert named_source("batch.page_table").describe() == "i32[num_requests max_pages] Contiguous, PerRequest, PageIds"


def test_the_cost_is_bytes_on_the_wire_then_passes_over_all_rows_then_over_own() -> None:
    options = PlanOptions(prefill_backend="torch_reference", decode_backend="torch_reference", cp_size=4)
    costs = {name: cost_of(path_named(name), options) for _, name in EXPECTED}
    assert costs == {
        "gather_rope": Cost(1152, 4, 1),
        "rope_gather": Cost(1152, 1, 2),
        "rope_gather_write": Cost(1152, 1, 2),
        "rope_quantize_gather": Cost(576, 1, 1),
        "rope_quantize_gather_write": Cost(576, 1, 1),
        "gather_rope_quantize_rows": Cost(1152, 4, 1),
        "rope_gather_quantize_rows": Cost(1152, 2, 2),
        "rope_quantize_rows_gather": Cost(656, 1, 2),
        "rope_quantize_rows_gather_write": Cost(656, 1, 2),
    }


def test_ranks_that_reach_each_others_memory_save_the_pass_of_the_write() -> None:
    options = PlanOptions(prefill_backend="torch_reference", decode_backend="torch_reference", cp_size=4, comm="symmetric")
    assert cost_of(path_named("rope_quantize_gather_write"), options) == Cost(576, 0, 1)
    assert cost_of(path_named("rope_quantize_gather"), options) == Cost(576, 1, 1)


def test_one_rank_sends_nothing() -> None:
    options = PlanOptions(prefill_backend="torch_reference", decode_backend="torch_reference", cp_size=1)
    assert {cost_of(path, options).wire_bytes for path in legal_paths(Zigzag)} == {0}


def test_the_rules_of_the_search_are_named_and_have_reasons() -> None:
    assert list(RULES) == ["no state twice", "no idle stage", "queries after keys", "views before copies"]
    assert all(RULES.values())
