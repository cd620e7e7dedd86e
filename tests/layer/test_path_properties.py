"""Over random batches, KV bytes and outputs on any number of ranks, in any layout, are those of one rank."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsa_contracts import Layout
from dsa_cp.demo.cells import RunSpec, make_job, reference_for, verdicts_of
from dsa_cp.demo.schedule import PrefillBatch, PrefillChunk, Schedule
from dsa_cp.layer.models import MODELS
from dsa_cp.layouts import Interleave, VllmReplicated, VllmZigzag, Zigzag
from dsa_cp.planner import make_plan

LAYOUTS: list[Layout] = [Zigzag(), Interleave(), Interleave(block=3), VllmZigzag(), VllmReplicated()]
BACKENDS = {"bf16": "flashmla_sparse", "fp8": "trtllm", "fp8_656": "torch_reference"}


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Draw one batch of one to five requests with prefixes, on pages in a random order."""
    page_size = draw(st.sampled_from([1, 4]))
    lens = draw(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 30)), min_size=1, max_size=5))
    counts = [-(-(prefix + extend) // page_size) for prefix, extend in lens]
    pages = draw(st.permutations(range(1, sum(counts) + 1)))
    chunks = []
    for request, ((prefix, extend), count) in enumerate(zip(lens, counts, strict=True)):
        start = sum(counts[:request])
        chunks.append(PrefillChunk(request, prefix, extend, tuple(pages[start : start + count])))
    return Schedule((PrefillBatch(0, tuple(chunks)),), sum(counts) + 1, page_size, cached_tokens=0)


@settings(max_examples=20)
@given(
    schedule=schedules(),
    layout=st.sampled_from(LAYOUTS),
    cp_size=st.integers(2, 5),
    kv_format=st.sampled_from(sorted(BACKENDS)),
    seed=st.integers(0, 99),
)
def test_any_batch_in_any_layout_leaves_the_bytes_and_outputs_of_one_rank(
    schedule: Schedule, layout: Layout, cp_size: int, kv_format: str, seed: int
) -> None:
    spec = RunSpec(MODELS["tiny"], schedule, cp_size, num_layers=1, seed=seed)
    plan = make_plan(BACKENDS[kv_format], kv_format, layout=layout.name, cp_size=cp_size)
    reference = reference_for(spec, plan)
    assert torch.count_nonzero(reference.pools[0]) > 0
    for verdict in verdicts_of(spec, make_job(spec, layout, plan), reference):
        assert verdict.differing_slots == 0
        assert verdict.output_equal
