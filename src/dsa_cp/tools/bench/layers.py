"""61 layers in development and in production mode, on every rank of a group: what the checks and the agreements cost."""

import importlib.util
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import dsa_contracts.stages as contracts
from dsa_contracts import Comm, CpBatch, stage, unchecked
from dsa_contracts.core.marks import BF16
from dsa_contracts.core.modes import VARIABLE, mode_from_environment
from dsa_cp.comm.distributed import DistributedComm
from dsa_cp.comm.process import run_processes
from dsa_cp.comm.symmetric import SymmetricComm
from dsa_cp.layer.cache import AnyCache, new_cache
from dsa_cp.layer.inputs import LayerInputs, declare_inputs
from dsa_cp.layer.kernel_sets import KERNEL_SETS, TorchKernels
from dsa_cp.layer.local_batch import local_batch
from dsa_cp.layer.models import MODELS, ModelDims
from dsa_cp.layer.path import AttentionLayer
from dsa_cp.layouts import Zigzag, build_batch
from dsa_cp.planner import attention_layer, cache_formats, make_plan
from dsa_cp.tools.bench.measure import timing_of

LAYERS = 61
REPETITIONS = 9
SIZES = (4096, 64)
"""Tokens a rank: of a full batch, and so few that the host is what a layer waits for."""

PAGE = 64
PLACEMENT = "rope_quantize_gather_write"


@contextmanager
def mode_of_children(mode: str) -> Iterator[None]:
    """Let processes that start now run in a mode: it is read once, when a stage is decorated."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = mode
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


def with_given_choice(kernels: type[TorchKernels], topk: Tensor) -> type[TorchKernels]:
    """Return a kernel set whose choice of keys is given, under the stage's own contract: it is not what is measured."""

    def select_topk(
        q_index: Any,
        head_weights: Any,
        pool: Any,
        causal_lens: Any,
        request_of_row: Any,
        page_table: Any,
        index_topk: Any,
        row_format: Any,
        batch: Any,
    ) -> Any:
        return topk

    members = {"select_topk": staticmethod(stage(contracts.select_topk)(select_topk))}
    return type(f"{kernels.__name__}WithGivenChoice", (kernels,), members)


@dataclass(frozen=True)
class MeasuredLayer:
    """The layer of the fp8 path over one batch, without its projections and without the choice of keys."""

    layer: AttentionLayer[Any, Any, Any]
    inputs: LayerInputs[Any, Any]
    cache: AnyCache

    def run(self, index: int) -> None:
        """Launch it once."""
        self.layer(self.inputs, self.cache, index)


def measured_layer(
    comm: Comm, model: ModelDims, rows: int, device: torch.device, kernels: type[TorchKernels]
) -> MeasuredLayer:
    """Return a layer over one request of `rows` tokens a rank; both keys go into the pools in one collective.

    Args:
        comm: the group.
        model: the model's dims.
        rows: rows a rank.
        device: where to run.
        kernels: implementations of all stages but the choice of keys.
    """
    tokens = rows * comm.size
    pages = -(-tokens // PAGE)
    batch: CpBatch[Any] = build_batch(
        Zigzag(),
        comm.size,
        comm.rank,
        [tokens],
        out_cache_loc=torch.arange(tokens, device=device),
        page_table=torch.arange(pages, dtype=torch.int32, device=device)[None],
        device=device,
    )
    plan = make_plan("trtllm", "fp8", layout="zigzag", cp_size=comm.size, comm="symmetric", placement=PLACEMENT)
    lens = local_batch(batch).causal_lens[:, None]
    wanted = torch.arange(model.index_topk, dtype=torch.int32, device=device)[None]
    topk = torch.where(wanted < lens, wanted, -1).contiguous()
    layer = attention_layer(batch, model, plan, comm, with_given_choice(kernels, topk)).returning(BF16)
    cache = new_cache(cache_formats(plan, model), pages, PAGE, device=device, comm=comm)
    return MeasuredLayer(layer, _inputs(model, batch, rows), cache)


def _inputs(model: ModelDims, batch: CpBatch[Any], rows: int) -> LayerInputs[Any, Any]:
    """Return random rows; the path does the same work whatever they are."""
    rank, width = model.kv_lora_rank, model.kv_lora_rank + model.qk_rope_head_dim

    def normal(*shape: int) -> Tensor:
        return torch.randn(rows, *shape, device=batch.device, dtype=torch.bfloat16)

    q, latent = normal(model.num_heads, width), normal(width)
    return declare_inputs(
        batch,
        "bench",
        q_nope=q[..., :rank],
        q_rope=q[..., rank:],
        k_nope=latent[:, :rank],
        k_rope=latent[:, rank:],
        q_index=normal(model.num_index_heads, model.index_head_dim),
        k_index=normal(model.index_head_dim),
        head_weights=normal(model.num_index_heads).float(),
    )


def fastest_kernels(comm: Comm) -> tuple[type[TorchKernels], dict[str, str]]:
    """Return the kernel set of the layer, and where those stages come from that have more than one implementation."""
    name = "triton" if importlib.util.find_spec("flash_mla") is None else "flash_mla"
    return KERNEL_SETS[name], {"attend": name, "gather": type(comm).__name__}


def time_layers(comm: Comm, sizes: Sequence[int], model: ModelDims) -> list[dict[str, object]]:
    """Time 61 layers as one rank, in the mode of this process; in development also with checks suspended, in turns."""
    device = torch.device("cuda", torch.cuda.current_device())
    if isinstance(comm, DistributedComm) and comm.size > 1:
        comm = SymmetricComm(comm, device)
    return [record for rows in sizes for record in _time_size(comm, rows, model, device)]


def _time_size(comm: Comm, rows: int, model: ModelDims, device: torch.device) -> list[dict[str, object]]:
    """Time 61 layers at one size."""
    kernels, sources = fastest_kernels(comm)
    layer = measured_layer(comm, model, rows, device, kernels)
    mode = mode_from_environment().value
    ways = [mode] if mode == "production" else [mode, f"{mode}, checks suspended"]
    samples: dict[str, list[float]] = {way: [] for way in ways}
    for repetition in range(REPETITIONS + 2):
        for way in ways:
            with unchecked() if way.endswith("suspended") else nullcontext():
                spent = _time_batch(comm, layer)
            if repetition >= 2:
                samples[way].append(spent)
    case = {"part": "modes", "rows": rows, "heads": model.num_heads, "layers": LAYERS, **sources}
    return [{**case, "mode": way, **timing_of(samples[way]).as_json()} for way in ways]


def _time_batch(comm: Comm, layer: MeasuredLayer) -> float:
    """Return the time in which 61 layers were launched and done, in microseconds a layer."""
    torch.cuda.synchronize()
    comm.agree("bench")
    started = time.perf_counter()
    for at in range(LAYERS):
        layer.run(at)
    torch.cuda.synchronize()
    return (time.perf_counter() - started) / LAYERS * 1e6


def measure_modes(cp_size: int) -> list[dict[str, object]]:
    """Return records of each mode; every mode has processes of its own."""
    records = []
    for mode in ("production", "development"):
        with mode_of_children(mode):
            ranks = run_processes(cp_size, time_layers, SIZES, MODELS["deepseek-v3.2"], device="cuda", timeout_s=60.0)
        records += [max(found, key=lambda each: float(str(each["median_us"]))) for found in zip(*ranks, strict=True)]
    return sorted(records, key=lambda record: -int(str(record["rows"])))
