"""The stage calls of a layer: which stage, and where each of its tensors comes from, recorded from a layer that runs.

A layer makes the same calls for every batch, rank and layout, since no function of it branches on any of them; so a run of
five tokens on one rank shows them all. A test compares runs of other batches, ranks and layouts, and what the planner found.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, get_origin

import torch
from torch import Tensor

from dsa_contracts import Comm, CpBatch, Layout, contract_of, unchecked
from dsa_contracts.core.contract import StageContract
from dsa_contracts.core.errors import ContractDefinitionError
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_cp import stages
from dsa_cp.comm import run_ranks
from dsa_cp.demo.breakages import breakage_by_name
from dsa_cp.demo.run import AnyLayer
from dsa_cp.layer.cache import new_cache
from dsa_cp.layer.inputs import draw, shard_inputs
from dsa_cp.layer.kernel_sets import TorchKernels, observed
from dsa_cp.layer.local_batch import local_batch, padded_local_batch
from dsa_cp.layer.models import MODELS
from dsa_cp.layouts import Interleave, build_batch
from dsa_cp.planner import attention_layer, cache_formats, make_plan
from dsa_cp.planner.search import legal_paths

BACKEND = "torch_reference"
"""Takes every placement."""

MODEL = MODELS["tiny"]


@dataclass(frozen=True)
class StageCall:
    """One call of a stage.

    Attributes:
        stage: name of the stage.
        sources: where each tensor argument comes from: (parameter, source). A source is `inputs.X` (`LayerInputs`),
            `local.X` (`LocalBatch`), `batch.X` (`CpBatch`), `setting.X`, `cache.kv`, `cache.index`, or `stage.X`: what the
            last call of that stage returned.
        marks: what stands for the arguments that choose types: (parameter, mark of the row format, or class).
    """

    stage: str
    sources: tuple[tuple[str, str], ...]
    marks: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True)
class Example:
    """What is run to see the calls of a layer: any will do.

    Attributes:
        layout: which rank holds which tokens.
        cp_size: ranks.
        extend_lens: new tokens of each request.
        padded: whether a rank's rows have padding rows among them.
    """

    layout: Layout = field(default_factory=Interleave)
    cp_size: int = 1
    extend_lens: tuple[int, ...] = (5,)
    padded: bool = False


def as_planned(layer: AnyLayer) -> AnyLayer:
    """Return a layer as its plan makes it."""
    return layer


@cache
def layer_steps(placement: str) -> tuple[StageCall, ...]:
    """Return the calls of a layer with a placement, those that are made once per batch first."""
    return recorded_steps(placement, Example())


@cache
def early_gather_steps() -> tuple[StageCall, ...]:
    """Return the calls of a layer whose K is gathered before its fused RoPE, as `dsa-cp run --break gather-early` runs it.

    On one rank all rows are this rank's, so that it runs to its end where no contract is checked.
    """
    broken = breakage_by_name("gather-early")
    with unchecked():
        return recorded_steps("rope_quantize_gather", Example(), broken.amend)


def recorded_steps(
    placement: str, example: Example, amend: Callable[[AnyLayer], AnyLayer] = as_planned
) -> tuple[StageCall, ...]:
    """Return the calls that rank 0 of a group makes in one layer.

    Args:
        placement: name of the placement.
        example: the batch and the group.
        amend: changes the layer before it runs.

    Raises:
        ContractDefinitionError: DSA001, a tensor argument is none that this module knows.
    """
    row_format = next(path.row_format for path in legal_paths(type(example.layout)) if path.name == placement)
    sizes = {"layout": example.layout.name, "cp_size": example.cp_size}
    plan = make_plan(BACKEND, row_format, placement=placement, **sizes)  # type: ignore[arg-type]

    def body(comm: Comm) -> tuple[list[MadeCall], dict[str, Any]]:
        calls: list[MadeCall] = []
        kernels = observed(TorchKernels, lambda *call: calls.append(MadeCall(*call)))
        batch = _batch(example, comm)
        make_local: Any = padded_local_batch if example.padded else local_batch
        layer = amend(attention_layer(batch, MODEL, plan, comm, kernels, local=make_local(batch, kernels)))
        drawn = draw(MODEL, batch.nnz, 0, 0, 0, batch.device)
        inputs = shard_inputs(drawn, MODEL, layer.setting.local, batch)
        kv_cache = new_cache(cache_formats(plan, MODEL), 1 + batch.num_requests, batch.page_size)
        layer(inputs, kv_cache, 0)
        setting = layer.setting
        return calls, {"batch": batch, "local": setting.local, "setting": setting, "inputs": inputs, "cache": kv_cache}

    calls, owners = run_ranks(example.cp_size, body)[0]
    return tuple(_steps(calls, _standing(owners)))


def _batch(example: Example, comm: Comm) -> CpBatch[Any]:
    """Return the batch of an example: request r on page r + 1."""
    pages = torch.arange(1, 1 + len(example.extend_lens), dtype=torch.int32)[:, None]
    slots = [64 * (at + 1) + token for at, length in enumerate(example.extend_lens) for token in range(length)]
    places = {"out_cache_loc": torch.tensor(slots), "page_table": pages, "page_size": 64}
    alignment = 8 if example.padded else 1
    return build_batch(
        example.layout,
        comm.size,
        comm.rank,
        example.extend_lens,
        row_alignment=alignment,
        **places,  # type: ignore[arg-type]
    )


@dataclass(frozen=True)
class MadeCall:
    """One call as it was made: the stage's name, its arguments by position, and what it returned."""

    stage: str
    args: tuple[object, ...]
    result: object


def _standing(owners: dict[str, Any]) -> dict[int, str]:
    """Return the source of every tensor that a layer has before its first call, by the object's id; later owners name it."""
    found = {}
    for owner, values in owners.items():
        for item in fields(values):
            value = getattr(values, item.name)
            if isinstance(value, Tensor):
                found[id(value)] = f"{owner}.{item.name}"
    return found


def _steps(calls: list[MadeCall], sources: dict[int, str]) -> Iterator[StageCall]:
    """Yield calls with the sources of their arguments; what a call returns is a source of those after it."""
    for call in calls:
        contract = contract_of(getattr(stages, call.stage))
        yield _step(contract, call, sources)
        results = call.result if isinstance(call.result, tuple) else (call.result,)
        for record, result in zip(contract.returns, results, strict=False):
            sources[id(result)] = f"{call.stage}.{record.name}"


def _step(contract: StageContract, call: MadeCall, sources: dict[int, str]) -> StageCall:
    """Return a call as a step; raises ContractDefinitionError DSA001 where an argument comes from nowhere."""
    taken: list[tuple[str, str]] = []
    marks: list[tuple[str, object]] = []
    for param, value in zip(contract.params, call.args, strict=True):
        if isinstance(value, Tensor):
            if id(value) not in sources:
                raise ContractDefinitionError(f"{contract.name}: nothing says where {param.name} comes from")
            taken.append((param.name, sources[id(value)]))
        elif isinstance(value, RowFormat):
            marks.append((param.name, value.mark))
        elif get_origin(param.hint) is type:
            marks.append((param.name, value))
    return StageCall(contract.name, tuple(taken), tuple(marks))
