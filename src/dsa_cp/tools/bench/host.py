"""Host time of a layer's positions and lengths: split and concatenated each layer as upstream does, or indexed once a batch.

Upstream's order is that of sglang 0.5.15 `cp_split_and_rebuild_position` and the zigzag reorder of `seq_lens` in its DSA
backend, written by us from its description: both run in every layer of every batch.
"""

import time
from collections.abc import Callable
from typing import Any

import torch

from dsa_cp.layer.local_batch import LocalBatch, local_batch
from dsa_cp.layouts import Zigzag, build_batches
from dsa_cp.tools.bench.measure import timing_of

LAYERS = 61
REQUESTS = (1, 8, 32)


def measure_host(device: torch.device, rows: int = 4096, cp_size: int = 2) -> list[dict[str, object]]:
    """Return records: host time a layer of both ways, by number of requests, over a batch of `cp_size * rows` tokens."""
    records: list[dict[str, object]] = []
    torch.set_num_threads(1)
    for requests in REQUESTS:
        extend = [cp_size * rows // requests] * requests
        batch = build_batches(Zigzag(), cp_size, extend, device=device)[0]
        pieces = [table for each in extend for table in [each // (2 * cp_size)] * (2 * cp_size)]
        heads = [at * 2 * cp_size for at in range(requests)]
        mine = [*heads, *(at + 2 * cp_size - 1 for at in heads)]

        def upstream(pieces: list[int] = pieces, mine: list[int] = mine, batch: object = batch) -> None:
            for values in (batch.positions, batch.causal_lens):  # type: ignore[attr-defined]
                parts = list(torch.split(values, pieces))
                torch.cat([parts[at] for at in mine])

        def ours(batch: object = batch) -> None:
            local: LocalBatch[Any, Any] = local_batch(batch)  # type: ignore[arg-type]
            for _ in range(LAYERS):
                _ = local.positions, local.causal_lens

        for way, call, layers in (("split and cat each layer", upstream, 1), ("index once a batch", ours, LAYERS)):
            case = {"part": "host", "way": way, "requests": requests, "rows": rows, "device": device.type}
            records.append({**case, **_host_time(call, layers, device)})
    return records


def _host_time(call: Callable[[], None], layers: int, device: torch.device) -> dict[str, object]:
    """Return the time in which a call returns, a layer; what it launched is waited for in between."""
    samples = []
    for repetition in range(60):
        if device.type == "cuda":
            torch.cuda.synchronize()
        started = time.perf_counter()
        call()
        if repetition >= 10:
            samples.append((time.perf_counter() - started) / layers * 1e6)
    return timing_of(samples).as_json()
