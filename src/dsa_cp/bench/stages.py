"""Each stage that has a kernel against its floor: the bytes it must move over the copy bandwidth of the same run."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dsa_cp.bench.measure import WARM_UPS, Timing, capture, time_events, time_graph

TOKENS = (1024, 4096, 16384)
HEADS = (128, 64, 16)
COPY_BYTES = 1 << 30
STEPS = 8
"""Launches of one graph."""

RANK, ROPE = 512, 64


def measure_stages() -> list[dict[str, object]]:
    """Return records of the stages on one GPU, with their floors."""
    source = torch.randint(0, 256, (COPY_BYTES,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    # Not in a graph: a copy node of a graph moves about two thirds of what the same copy moves by itself.
    copied = time_events(partial(target.copy_, source))
    rate = 2 * COPY_BYTES / copied.median_us / 1e3
    records: list[dict[str, object]] = [{"part": "copy", "local_gb_s": round(rate, 1), **copied.as_json()}]
    for name, case, moved, step in _cases():
        timing = _timed(step)
        floor = moved / rate / 1e3
        record = {"part": "stage", "stage": name, "case": case, "bytes": moved, **timing.as_json()}
        records.append({**record, "floor_us": round(floor, 2), "ratio": round(timing.median_us / floor, 3)})
    return records


def _timed(step: Callable[[int], Any]) -> Timing:
    """Time a launch inside a graph: by itself, a kernel of some microseconds takes as long as its launch on the host."""
    for at in range(WARM_UPS):
        step(at)
    return time_graph(capture(step, STEPS), torch.cuda.synchronize, steps=STEPS)


Case = tuple[str, str, int, Callable[[int], Any]]


def _cases() -> Iterator[Case]:
    """Yield stage, case, bytes that must move, and a launch; inputs are fresh and larger than the cache where it matters."""
    yield from _rope_quantize()
    yield from _row_stages()


def _rope_quantize() -> Iterator[Case]:
    from dsa_cp.kernels import custom_ops
    from dsa_cp.numerics.rotation import cos_sin_table

    table = cos_sin_table(max(TOKENS), ROPE, 10000.0).cuda()
    for heads in HEADS:
        for tokens in TOKENS:
            q = torch.randn(tokens, heads, RANK + ROPE, device="cuda", dtype=torch.bfloat16)
            k = torch.randn(tokens, RANK + ROPE, device="cuda", dtype=torch.bfloat16)
            positions = torch.randperm(tokens, device="cuda")
            parts = q[..., :RANK], q[..., RANK:], k[:, :RANK], k[:, RANK:]
            step = partial(custom_ops.rope_quantize, *parts, positions, table, False, 1.0, 1.0)
            moved = tokens * ((heads + 1) * (RANK + ROPE) * 3 + ROPE * 4 + 8)
            yield "rope_quantize", f"{tokens} tokens, {heads} heads", moved, lambda at, step=step: step()  # type: ignore[misc]


def _row_stages() -> Iterator[Case]:
    from dsa_cp.kernels import custom_ops

    for rows in (32768, 131072):
        loc = torch.randperm(rows + 64, device="cuda")[:rows]
        for width in (576, 132):
            pool = torch.zeros(rows + 64, width, dtype=torch.uint8, device="cuda")
            kv = torch.randint(0, 256, (rows, width), dtype=torch.uint8, device="cuda")

            def write(at: int, pool: Tensor = pool, kv: Tensor = kv, loc: Tensor = loc) -> None:
                custom_ops.write_kv(pool, kv, loc)

            yield "write_kv", f"{rows} rows of {width} bytes", rows * (2 * width + 8), write
        latent = torch.randn(rows, RANK, device="cuda", dtype=torch.bfloat16)
        rope = torch.randn(rows, ROPE, device="cuda", dtype=torch.bfloat16)
        key = torch.randn(rows, 128, device="cuda", dtype=torch.bfloat16)

        def quantize(at: int, latent: Tensor = latent, rope: Tensor = rope) -> None:
            custom_ops.quantize_groups(latent, rope, 128)

        def pack(at: int, key: Tensor = key) -> None:
            custom_ops.quantize_groups(key, None, 128)

        yield "quantize_rows", f"{rows} rows", rows * (1152 + 656), quantize
        yield "pack_index_key", f"{rows} rows", rows * (256 + 132), pack
