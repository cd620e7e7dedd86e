"""The whole path, placement by placement: under fake tensors, and on real tiny ones on all ranks."""

from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import dsa_cp.stages as stages
from dsa_contracts import Comm, CpBatch, Layout, checking_values, declare_lasting
from dsa_contracts.core.marks import Plain
from dsa_contracts.dsa.states import Table
from dsa_cp.comm import run_ranks
from dsa_cp.layer.cache import AnyCache, new_cache
from dsa_cp.layer.inputs import LayerInputs, cos_sin_cache, declare_inputs, draw, shard_inputs
from dsa_cp.layer.local_batch import local_batch
from dsa_cp.layer.models import ModelDims
from dsa_cp.layouts import Interleave
from dsa_cp.planner import Plan, attention_layer, cache_formats, make_plan
from dsa_cp.planner.search import legal_paths
from dsa_cp.tools.review.drawings.scene import LAYOUTS
from dsa_cp.tools.review.probe.arguments import ProbeComm
from dsa_cp.tools.review.probe.cases import cases_of
from dsa_cp.tools.review.probe.fake import fake_batch, outcome_of
from dsa_cp.tools.review.probe.sizes import CP_SIZE, MAX_POSITION, NUM_PAGES, PAGE_SIZE, model_for, probe_batch
from dsa_cp.tools.review.probe.stage_probe import ProbeResult, checked, probe_case
from dsa_cp.tools.review.probe.standing_in import promised_kernels
from dsa_cp.tools.stage_table import stage_contracts

LAYER = 0
BACKEND = "torch_reference"
"""Takes every placement; the references do the work."""


def probe_paths() -> Iterator[ProbeResult]:
    """Yield a result for each placement and layout."""
    readers = data_readers()
    for path in legal_paths(Interleave):
        plan = make_plan(BACKEND, path.row_format, cp_size=CP_SIZE, placement=path.name)
        for layout in LAYOUTS:
            yield probe_path(plan, layout, readers)


def model_of(plan: Plan) -> ModelDims:
    """Return the probe's model for a plan's row formats, of K and of the indexer."""
    return model_for(f"{plan.row_format} {'index_bf16' if plan.row_format == 'bf16' else 'index_fp8'}")


def data_readers() -> tuple[str, ...]:
    """Return the stages whose references read data, as a probe of one case of each shows."""
    found = []
    for contract in stage_contracts():
        function = checked(contract, getattr(stages, contract.name))
        if probe_case(contract, function, next(cases_of(contract))).fake.verdict == "data-dependent":
            found.append(contract.name)
    return tuple(found)


def probe_path(plan: Plan, layout: Layout, readers: tuple[str, ...]) -> ProbeResult:
    """Return what one placement shows under one layout."""
    found = outcome_of(lambda: _run_fake(plan, layout, readers))
    real = outcome_of(lambda: _run_real(plan, layout))
    return ProbeResult(f"path {plan.placement}", layout.name, found, real, readers)


def _run_fake(plan: Plan, layout: Layout, readers: tuple[str, ...]) -> None:
    """Run one layer on one rank on fakes; the contracts of stages that read data stand for them."""
    comm, model = ProbeComm(), model_of(plan)
    batch = probe_batch(comm.size, comm.rank, layout)
    inputs = _drawn(model, batch)
    table = cos_sin_cache(model, MAX_POSITION, torch.device("cpu"))
    with FakeTensorMode() as mode, torch.no_grad():
        fakes = fake_batch(batch, mode)
        fake_table: Any = declare_lasting(mode.from_tensor(table), Table, Plain, "probe")
        layer = attention_layer(fakes, model, plan, comm, promised_kernels(readers), table=fake_table)
        rows = {name: mode.from_tensor(value) for name, value in vars(inputs).items()}
        layer(declare_inputs(fakes, "probe", **rows), _cache(plan, model), LAYER)


def _drawn(model: ModelDims, batch: CpBatch[Any]) -> LayerInputs[Any, Any]:
    """Return seeded inputs of a batch."""
    return shard_inputs(draw(model, batch.nnz, 0, 0, 0, torch.device("cpu")), model, local_batch(batch), batch)


def _run_real(plan: Plan, layout: Layout) -> None:
    """Run one layer on all ranks, values checked as well."""
    model = model_of(plan)
    table = cos_sin_cache(model, MAX_POSITION, torch.device("cpu"))

    def body(comm: Comm) -> None:
        batch = probe_batch(comm.size, comm.rank, layout)
        layer = attention_layer(batch, model, plan, comm, table=table)
        layer(_drawn(model, batch), _cache(plan, model), LAYER)

    with checking_values():
        run_ranks(CP_SIZE, body)


def _cache(plan: Plan, model: ModelDims) -> AnyCache:
    """Return an empty KV cache of the probe's size."""
    return new_cache(cache_formats(plan, model), NUM_PAGES, PAGE_SIZE)
