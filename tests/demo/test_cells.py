"""The cells of a run compare with one rank, and a comparison that should fail does."""

import math
from dataclasses import replace

import pytest
import torch

from dsa_contracts import Layout
from dsa_cp.comm import run_ranks
from dsa_cp.demo.cells import RunSpec, make_job, reference_for, report_of, run_cells, verdicts_of
from dsa_cp.demo.compare import Reference
from dsa_cp.demo.run import run_rank
from dsa_cp.demo.schedule import build_schedule
from dsa_cp.demo.trace import TraceRequest
from dsa_cp.layer.kernel_sets import KERNEL_SETS, TorchKernels, observed
from dsa_cp.layer.models import MODELS
from dsa_cp.layouts import Interleave, VllmZigzag, Zigzag
from dsa_cp.planner import CommKind, make_plan

REQUESTS = (
    TraceRequest(0, 700, 1, (0, 1)),
    TraceRequest(1, 530, 1, (0, 2)),
    TraceRequest(2, 513, 1, (0, 3)),
)
"""The second and third share their first block; the third leaves one token to prefill once that is cached."""


def spec_of(cp_size: int, *, processes: bool = False, layers: int = 1) -> RunSpec:
    """Return a small run: several requests, a shared prefix, a chunked request."""
    schedule = build_schedule(REQUESTS, chunk_tokens=600)
    return RunSpec(MODELS["tiny"], schedule, cp_size, layers, in_processes=processes)


def test_all_cells_have_the_bytes_of_one_rank() -> None:
    layouts = (Zigzag(), Interleave(), VllmZigzag())
    reports = list(run_cells(spec_of(4), layouts, ("bf16", "fp8", "fp8_656")))
    assert [(r.layout, r.kv_format) for r in reports] == [
        (layout.name, kv_format) for kv_format in ("bf16", "fp8", "fp8_656") for layout in layouts
    ]
    assert all(report.kv_bytes_equal and report.output_equal for report in reports)
    assert all(report.output_max_error < 1e-5 for report in reports)
    assert {r.kv_format: r.gather_after for r in reports} == {
        "bf16": "apply_rope",
        "fp8": "rope_quantize",
        "fp8_656": "quantize_rows",
    }


def test_cells_whose_gathers_go_into_the_pools_have_the_bytes_of_one_rank() -> None:
    spec = replace(spec_of(3), comm="symmetric")
    reports = list(run_cells(spec, (Zigzag(), VllmZigzag()), ("bf16", "fp8", "fp8_656")))
    assert all(report.kv_bytes_equal and report.output_equal for report in reports)
    assert {r.plan.rsplit("/")[-1] for r in reports} == {
        "rope_gather_write",
        "rope_quantize_gather_write",
        "rope_quantize_rows_gather_write",
    }
    assert {r.comm for r in reports} == {"symmetric"}


def test_keys_of_the_indexer_go_the_way_of_kv_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    called: dict[CommKind, list[str]] = {"collective": [], "symmetric": []}
    for comm, names in called.items():
        noted = observed(TorchKernels, lambda name, args, result, to=names: to.append(name))  # type: ignore[misc]
        monkeypatch.setitem(KERNEL_SETS, "torch", noted)
        plan = make_plan("trtllm", "fp8", comm=comm)
        job = make_job(spec_of(2), Interleave(), plan)
        run_ranks(2, lambda group, job=job: run_rank(group, job))  # type: ignore[misc]
    stages = ("all_gather_kv", "write_kv", "gather_write_kv_and_index", "gather_write_kv")
    layers = called["symmetric"].count("select_topk")
    assert layers == called["collective"].count("select_topk") > 0
    assert [called["collective"].count(name) for name in stages] == [2 * layers, 2 * layers, 0, 0]
    assert [called["symmetric"].count(name) for name in stages] == [0, 0, layers, 0], "one collective a layer"


def test_the_schedule_of_these_tests_has_hits_and_a_one_token_request() -> None:
    batches = spec_of(1).schedule.batches
    assert [(b.extend_lens, b.prefix_lens) for b in batches][-1][0][-1] == 1
    assert spec_of(1).schedule.cached_tokens > 0


def test_more_ranks_than_tokens_is_a_defined_run() -> None:
    schedule = build_schedule((TraceRequest(0, 3, 1, (0,)),))
    (report,) = run_cells(RunSpec(MODELS["tiny"], schedule, 8, 1), (Zigzag(),), ("fp8",))
    assert report.kv_bytes_equal
    assert report.output_equal


def test_one_byte_of_one_slot_is_found() -> None:
    spec = spec_of(2)
    plan = make_plan("trtllm", "fp8")
    reference = reference_for(spec, plan)
    job = make_job(spec, Zigzag(), plan)
    reference.pools[0][3, 5, 7] ^= 1
    report = report_of(spec, job, verdicts_of(spec, job, reference))
    assert not report.kv_bytes_equal
    assert report.differing_slots == 1
    assert report.first_difference == f"layer 0, KV pool, slot {3 * 64 + 5}"


def test_an_output_outside_the_bound_and_a_nan_are_found() -> None:
    spec = spec_of(2)
    plan = make_plan("flashmla_sparse", "bf16")
    reference = reference_for(spec, plan)
    job = make_job(spec, Interleave(), plan)
    outs = [out.clone() for out in reference.outs]
    outs[0][5] += 1e-3
    report = report_of(spec, job, verdicts_of(spec, job, Reference(reference.pools, outs)))
    assert not report.output_equal
    assert report.output_max_error > 1e-5
    outs[0][5, 0, 0] = math.nan
    report = report_of(spec, job, verdicts_of(spec, job, Reference(reference.pools, outs)))
    assert not report.output_equal
    assert report.as_json()["output_max_error"] == "nan"


def test_the_same_seed_gives_the_same_reference_and_another_seed_another() -> None:
    plan = make_plan("trtllm", "fp8")
    first, again = reference_for(spec_of(1), plan), reference_for(spec_of(1), plan)
    other = reference_for(replace(spec_of(1), seed=1), plan)
    assert all(torch.equal(a, b) for a, b in zip(first.pools, again.pools, strict=True))
    assert not torch.equal(first.pools[0], other.pools[0])


@pytest.mark.process
@pytest.mark.parametrize(("layout", "kv_format"), [(Zigzag(), "bf16"), (Interleave(), "fp8")], ids=["bf16", "fp8"])
def test_four_gloo_processes_through_two_layers_have_the_bytes_of_one_rank(layout: Layout, kv_format: str) -> None:
    """Each pair once: layouts and formats meet in one process above, and what is left to show is the group."""
    reports = list(run_cells(spec_of(4, processes=True, layers=2), (layout,), (kv_format,)))
    assert [report.layout for report in reports] == [layout.name]
    assert all(report.kv_bytes_equal and report.output_equal for report in reports)
    assert all(report.stages_checked > 0 for report in reports)
