"""The whole path, placement by placement: under fake tensors, and on real tiny ones on all ranks."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import dsa_cp.stages as stages
from dsa_contracts import Comm, CpBatch, Layout, checking_values, declare, declare_lasting
from dsa_contracts.core.marks import Plain
from dsa_contracts.core.tensors import spec_of
from dsa_contracts.dsa.states import Packed, Pool, Rotated, Table
from dsa_cp.comm import run_ranks
from dsa_cp.layer.inputs import LayerInputs, cos_sin_cache, draw, shard_inputs
from dsa_cp.layer.local_batch import local_batch
from dsa_cp.layer.path import LayerPools, run_layer
from dsa_cp.layer.setting import Setting
from dsa_cp.layer.wiring import PLACEMENTS, Wiring, wire
from dsa_cp.layouts import Interleave
from dsa_cp.planner import make_plan
from dsa_cp.planner.search import legal_paths
from dsa_cp.tools.review.drawings.scene import LAYOUTS
from dsa_cp.tools.review.probe.arguments import ProbeComm
from dsa_cp.tools.review.probe.cases import cases_of
from dsa_cp.tools.review.probe.fake import fake_batch, outcome_of
from dsa_cp.tools.review.probe.sizes import CP_SIZE, MAX_POSITION, NUM_PAGES, PAGE_SIZE, model_for, probe_batch
from dsa_cp.tools.review.probe.stage_probe import ProbeResult, checked, probe_case
from dsa_cp.tools.review.probe.standing_in import promised_kernels
from dsa_cp.tools.stage_table import stage_contracts

BACKEND = "torch_reference"
"""Takes every placement; the references do the work."""


def probe_paths() -> Iterator[ProbeResult]:
    """Yield a result for each placement and layout."""
    formats = {path.name: path.row_format for path in legal_paths(Interleave)}
    readers = data_readers()
    for name in PLACEMENTS:
        model = model_for(f"{formats[name]} {_index(formats[name])}")
        wiring = wire(make_plan(BACKEND, formats[name], placement=name), model)
        for layout in LAYOUTS:
            yield probe_path(name, wiring, layout, readers)


def _index(row_format: str) -> str:
    """Return the indexer's row format that goes with a format of KV rows."""
    return "index_bf16" if row_format == "bf16" else "index_fp8"


def data_readers() -> tuple[str, ...]:
    """Return the stages whose references read data, as a probe of one case of each shows."""
    found = []
    for contract in stage_contracts():
        function = checked(contract, getattr(stages, contract.name))
        if probe_case(contract, function, next(cases_of(contract))).fake.verdict == "data-dependent":
            found.append(contract.name)
    return tuple(found)


def probe_path(name: str, wiring: Wiring[Any, Any, Any, Any], layout: Layout, readers: tuple[str, ...]) -> ProbeResult:
    """Return what one placement shows under one layout."""
    found = outcome_of(lambda: _run_fake(wiring, layout, readers))
    real = outcome_of(lambda: _run_real(wiring, layout))
    return ProbeResult(f"path {name}", layout.name, found, real, readers)


def _run_fake(wiring: Wiring[Any, Any, Any, Any], layout: Layout, readers: tuple[str, ...]) -> None:
    """Run one layer on one rank on fakes; the contracts of stages that read data stand for them."""
    comm = ProbeComm()
    batch = probe_batch(comm.size, comm.rank, layout)
    model = model_for(f"{wiring.row_format.name} {wiring.index_format.name}")
    drawn = draw(model, batch.nnz, 0, 0, 0, torch.device("cpu"))
    inputs = shard_inputs(drawn, model, local_batch(batch), batch)
    table = cos_sin_cache(model, MAX_POSITION, torch.device("cpu"))
    with FakeTensorMode() as mode, torch.no_grad():
        view = fake_batch(batch, mode).at_layer(0)
        model.bind(view)
        fakes = _fake_inputs(inputs, view, mode)
        fake_table: Any = declare_lasting(mode.from_tensor(table), Table, Plain, "probe")
        setting: Setting[Any, Any] = Setting(
            model, view, local_batch(view), comm, fake_table, kernels=promised_kernels(readers)
        )
        run_layer(fakes, setting, _pools(wiring), wiring)


def _fake_inputs(inputs: LayerInputs[Any, Any], view: CpBatch[Any], mode: FakeTensorMode) -> LayerInputs[Any, Any]:
    """Return a layer's inputs as fakes, with the brands that their annotations say."""
    made: dict[str, Any] = {}
    for item in fields(LayerInputs):
        spec = spec_of(item.type)
        if spec is not None:
            made[item.name] = declare(mode.from_tensor(getattr(inputs, item.name)), spec.rows, spec.state, view, "probe")
    return LayerInputs(**made)


def _run_real(wiring: Wiring[Any, Any, Any, Any], layout: Layout) -> None:
    """Run one layer on all ranks, values checked as well."""
    model = model_for(f"{wiring.row_format.name} {wiring.index_format.name}")
    table = cos_sin_cache(model, MAX_POSITION, torch.device("cpu"))

    def body(comm: Comm) -> None:
        view = probe_batch(comm.size, comm.rank, layout).at_layer(0)
        model.bind(view)
        local = local_batch(view)
        drawn = draw(model, view.nnz, 0, 0, 0, torch.device("cpu"))
        setting: Setting[Any, Any] = Setting(model, view, local, comm, table)
        run_layer(shard_inputs(drawn, model, local, view), setting, _pools(wiring), wiring)

    with checking_values():
        run_ranks(CP_SIZE, body)


def _pools(wiring: Wiring[Any, Any, Any, Any]) -> LayerPools[Any]:
    """Return empty pools of the probe's size."""

    def pool(row_format: Any) -> Any:
        rows: Tensor = torch.zeros(NUM_PAGES, PAGE_SIZE, row_format.row_bytes, dtype=torch.uint8)
        return declare_lasting(rows, Pool, Packed[row_format.mark, Rotated], "probe")

    return LayerPools(pool(wiring.row_format), pool(wiring.index_format))
