"""61 layers in development and in production mode, on every rank of a group: what the checks and the agreements cost."""

import importlib.util
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from dsa_contracts import Comm, CpBatch, brand, declare, declare_lasting, unchecked
from dsa_contracts.core.marks import BF16, Plain
from dsa_contracts.core.modes import VARIABLE, mode_from_environment
from dsa_contracts.dsa.row_formats import fp8_format, index_fp8_format
from dsa_contracts.dsa.states import KeyIds, Local, Packed, Pool, Raw, Rotated
from dsa_cp.comm.distributed import DistributedComm
from dsa_cp.comm.process import run_processes
from dsa_cp.comm.symmetric import SymmetricComm
from dsa_cp.layer.inputs import LayerInputs, cos_sin_cache
from dsa_cp.layer.kernel_sets import KERNEL_SETS, TorchKernels, reaching_peers
from dsa_cp.layer.local_batch import LocalBatch, local_batch
from dsa_cp.layer.models import MODELS, ModelDims
from dsa_cp.layouts import Zigzag, build_batch
from dsa_cp.tools.bench.measure import timing_of

LAYERS = 61
REPETITIONS = 9
SIZES = (4096, 64)
"""Tokens a rank: of a full batch, and so few that the host is what a layer waits for."""

PAGE = 64
LOCAL: Any = Local
PACKED: Any = Packed
"""Marks whose parameters are values here."""


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


class Layer:
    """One layer of the fp8 path without its projections and without the choice of keys, which is not what is measured.

    Stages: RoPE of the indexer's key and query, pack_index_key, rope_quantize, one gather of both rows into both pools,
    attend. Each is the fastest that this machine has.
    """

    def __init__(self, comm: Comm, model: ModelDims, rows: int, device: torch.device) -> None:
        tokens = rows * comm.size
        self.comm, self.model = comm, model
        slots = torch.arange(tokens, device=device)
        table = torch.arange(-(-tokens // PAGE), dtype=torch.int32, device=device)[None]
        self.batch: CpBatch[Any] = build_batch(
            Zigzag(), comm.size, comm.rank, [tokens], out_cache_loc=slots, page_table=table, device=device
        )
        model.bind(self.batch)
        self.table = cos_sin_cache(model, tokens, device)
        self.local: LocalBatch[Any, Any] = local_batch(self.batch)
        self.formats = fp8_format(), index_fp8_format()
        self.pools = [self._pool(row_format, table.shape[1], device) for row_format in self.formats]
        self.inputs = self._inputs(rows, device)
        lens = self.local.causal_lens[:, None]
        wanted = torch.arange(model.index_topk, dtype=torch.int32, device=device)[None]
        self.topk = self._given(torch.where(wanted < lens, wanted, -1).contiguous(), KeyIds)

    def _given(self, values: Tensor, state: object) -> Any:
        return declare(values, LOCAL[Zigzag], state, self.batch, "bench")

    def _inputs(self, rows: int, device: torch.device) -> LayerInputs[Any, Any]:
        """Return random rows; the path does the same work whatever they are."""
        model = self.model
        width = model.kv_lora_rank + model.qk_rope_head_dim

        def normal(*shape: int) -> Tensor:
            return torch.randn(rows, *shape, device=device, dtype=torch.bfloat16)

        q, latent = normal(model.num_heads, width), normal(width)
        rank = model.kv_lora_rank
        return LayerInputs(
            self._given(q[..., :rank], Plain),
            self._given(q[..., rank:], Raw),
            self._given(latent[:, :rank], Plain),
            self._given(latent[:, rank:], Raw),
            self._given(normal(model.num_index_heads, model.index_head_dim), Raw),
            self._given(normal(model.index_head_dim), Raw),
            self._given(normal(model.num_index_heads).float(), Plain),
        )

    def _pool(self, row_format: Any, pages: int, device: torch.device) -> Any:
        shape = (pages, PAGE, row_format.row_bytes)
        if isinstance(self.comm, SymmetricComm):
            pool = self.comm.new_pools(1, shape)[0]
        else:
            pool = torch.zeros(shape, dtype=torch.uint8, device=device)
        return declare_lasting(pool, Pool, PACKED[row_format.mark, Rotated], "bench")

    def run(self, layer: int, stages: Any) -> None:
        """Launch one layer with a set of stages."""
        batch, local, given, model = self.batch.at_layer(layer), self.local, self.inputs, self.model
        loc: Any = brand(batch.required("rank_major_loc", "bench"))
        pages: Any = brand(batch.required("page_table", "bench"))
        (kv_format, index_format), (pool, index_pool) = self.formats, self.pools
        rotated = self.table, model.qk_rope_head_dim, model.index_rope_style, batch
        key = stages.apply_rope(given.k_index, local.positions, *rotated)
        stages.apply_rope(given.q_index, local.positions, *rotated)
        packed = stages.pack_index_key(key, index_format, batch)
        rows = given.q_nope, given.q_rope, given.k_nope, given.k_rope
        q, kv = stages.rope_quantize(*rows, local.positions, self.table, model.rope_style, 1.0, 1.0, batch)
        stages.gather_write_kv_and_index(pool, index_pool, kv, packed, loc, kv_format, index_format, batch, self.comm)
        facts = local.causal_lens, local.request_of_row, pages
        stages.attend(q, pool, self.topk, *facts, model.softmax_scale, 1.0, 1.0, BF16, kv_format, batch)


def fastest_stages(comm: Comm) -> tuple[type[TorchKernels], dict[str, str]]:
    """Return the kernel set of the layer, and where those stages come from that have more than one implementation."""
    name = "triton" if importlib.util.find_spec("flash_mla") is None else "flash_mla"
    kernels = KERNEL_SETS[name]
    if isinstance(comm, SymmetricComm):
        kernels = reaching_peers(kernels)
    return kernels, {"attend": name, "gather": type(comm).__name__}


def time_layers(comm: Comm, sizes: Sequence[int], model: ModelDims) -> list[dict[str, object]]:
    """Time 61 layers as one rank, in the mode of this process; in development also with checks suspended, in turns."""
    device = torch.device("cuda", torch.cuda.current_device())
    if isinstance(comm, DistributedComm) and comm.size > 1:
        comm = SymmetricComm(comm, device)
    return [record for rows in sizes for record in _time_size(comm, rows, model, device)]


def _time_size(comm: Comm, rows: int, model: ModelDims, device: torch.device) -> list[dict[str, object]]:
    """Time 61 layers at one size."""
    stages, sources = fastest_stages(comm)
    layer = Layer(comm, model, rows, device)
    mode = mode_from_environment().value
    ways = [mode] if mode == "production" else [mode, f"{mode}, checks suspended"]
    samples: dict[str, list[float]] = {way: [] for way in ways}
    for repetition in range(REPETITIONS + 2):
        for way in ways:
            with unchecked() if way.endswith("suspended") else nullcontext():
                spent = _time_batch(comm, layer, stages)
            if repetition >= 2:
                samples[way].append(spent)
    case = {"part": "modes", "rows": rows, "heads": model.num_heads, "layers": LAYERS, **sources}
    return [{**case, "mode": way, **timing_of(samples[way]).as_json()} for way in ways]


def _time_batch(comm: Comm, layer: Layer, stages: Any) -> float:
    """Return the time in which 61 layers were launched and done, in microseconds a layer."""
    torch.cuda.synchronize()
    comm.agree("bench")
    started = time.perf_counter()
    for at in range(LAYERS):
        layer.run(at, stages)
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
