"""Pools with known values, and what stages make of values: loops over single rows in float64, codes by an own encoder."""

import math
from typing import Any

import torch
from torch import Tensor

from dsa_contracts import CpBatch, RopeStyle
from dsa_contracts.core import marks as states
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.states import KeyIds, Rotated
from dsa_cp.numerics.rotation import cos_sin_table
from tests.support.branded import HEADS, local, local_index, normal, num_pages, pool_of
from tests.support.e4m3 import decode, encode, float32

CODES = torch.tensor([decode(code) for code in range(256)], dtype=torch.float64)


def slots_of(batch: CpBatch[Any], request: int) -> list[int]:
    """Slot of each key of a request."""
    assert batch.page_table is not None
    pages, size = batch.page_table[request].tolist(), batch.page_size
    return [pages[at // size] * size + at % size for at in range(batch.seq_lens[request])]


def filled_pool(batch: CpBatch[Any], rows: Tensor) -> Tensor:
    """A pool in which the keys of request after request are `rows`, and every other byte is 0xff: NaN in each format."""
    pool = torch.full((num_pages(batch), batch.page_size, rows.shape[1]), 0xFF, dtype=torch.uint8)
    flat = pool.view(-1, rows.shape[1])
    start = 0
    for request, length in enumerate(batch.seq_lens):
        flat[slots_of(batch, request)] = rows[start : start + length]
        start += length
    return pool


def packed_rows(row_format: RowFormat[Any, Any, Any], count: int, *, seed: int = 3) -> Tensor:
    """Seeded rows of a format, packed here and not by a stage: uint8 [count, row_bytes]."""
    parts = []
    for at, part in enumerate(row_format.parts):
        values = normal(count, part.count, seed=seed + at)
        if part.name == "scales":
            values = values.abs() + 0.25
        parts.append(values.to(part.dtype.torch_dtype).contiguous().view(torch.uint8))
    return torch.cat(parts, dim=1)


def row_values(row_format: RowFormat[Any, Any, Any], rows: Tensor) -> Tensor:
    """Values of packed rows, scales inside the row applied: float64 [n, elements]."""
    found: dict[str, Tensor] = {}
    for part in row_format.parts:
        columns = rows[:, part.columns].contiguous()
        dtype = part.dtype.torch_dtype
        found[part.name] = CODES[columns.long()] if dtype == torch.float8_e4m3fn else columns.view(dtype).double()
    scales = found.pop("scales", None)
    if scales is not None:
        name = row_format.parts[0].name
        groups = found[name].view(rows.shape[0], scales.shape[1], found[name].shape[1] // scales.shape[1])
        found[name] = (groups * scales[..., None]).flatten(1)
    return torch.cat(list(found.values()), dim=1)


def request_values(batch: CpBatch[Any], row_format: RowFormat[Any, Any, Any], rows: Tensor, request: int) -> Tensor:
    """Values of one request's keys, from the rows that `filled_pool` was given."""
    start = sum(batch.seq_lens[:request])
    return row_values(row_format, rows[start : start + batch.seq_lens[request]])


def attend_row(q: Tensor, keys: Tensor, chosen: list[int], scale: float, rank: int) -> tuple[Tensor, list[float]]:
    """Output and log of the denominator of one row, in float64.

    Args:
        q: float64 [heads, d].
        keys: float64 [keys of the row's request, d].
        chosen: keys that the row attends to.
        scale: multiplies q . k.
        rank: elements of a key that are also its value.
    """
    out, lse = torch.zeros(q.shape[0], rank, dtype=torch.float64), [-math.inf] * q.shape[0]
    for head in range(q.shape[0]):
        scores = [float(q[head] @ keys[key]) * scale for key in chosen]
        if scores:
            top = max(scores)
            weights = [math.exp(score - top) for score in scores]
            lse[head] = top + math.log(sum(weights))
            for weight, key in zip(weights, chosen, strict=True):
                out[head] += weight / sum(weights) * keys[key, :rank]
    return out, lse


def best_keys(q: Tensor, weights: Tensor, keys: Tensor, visible: int, count: int) -> list[int]:
    """Positions of the best keys by the indexer, rising; of equal scores the earlier one.

    Args:
        q: float64 [heads, d].
        weights: float64 [heads].
        keys: float64 [n, d].
        visible: keys that the row sees.
        count: keys to choose.
    """
    scores = [float((weights * (q @ keys[at]).clamp(min=0)).sum()) for at in range(visible)]
    return sorted(sorted(range(visible), key=lambda at: (-scores[at], at))[:count])


def values_of(tensor: Tensor) -> Tensor:
    return CODES[tensor.view(torch.uint8).long()] if tensor.dtype == torch.float8_e4m3fn else tensor.double()


def args_of(
    batch: CpBatch[Any], row_format: RowFormat[Any, Any, Any], rows: Tensor, topk: Tensor, q: Tensor
) -> dict[str, Any]:
    """A call; `topk` and `q` hold this rank's rows."""
    _, lens, requests = local_index(batch)
    return {
        "q": local(q.contiguous(), Rotated, batch),
        "pool": pool_of(filled_pool(batch, rows), row_format.mark),
        "topk_indices": local(topk.int().contiguous(), KeyIds, batch),
        "causal_lens": lens,
        "request_of_row": requests,
        "page_table": batch.page_table,
        "softmax_scale": 0.5,
        "q_scale": 1.0,
        "kv_scale": 1.0,
        "out_dtype": states.F32,
        "row_format": row_format,
        "batch": batch,
    }


def random_topk(batch: CpBatch[Any], width: int) -> Tensor:
    """For every row of the batch some of the keys that it sees, in no order, -1 between them."""
    generator = torch.Generator().manual_seed(11)
    topk = torch.full((batch.nnz, width), -1)
    for row, length in enumerate(batch.causal_lens.tolist()):
        count = min(int(torch.randint(0, width + 1, (1,), generator=generator)), length)
        places = torch.randperm(width, generator=generator)[:count]
        topk[row, places] = torch.randperm(length, generator=generator)[:count]
    return topk


def random_args(batch: CpBatch[Any], row_format: RowFormat[Any, Any, Any], width: int = 6) -> tuple[dict[str, Any], Tensor]:
    """The same draw on every rank, and the rows that stand in the pool."""
    rows = packed_rows(row_format, sum(batch.seq_lens))
    elements = sum(part.count for part in row_format.parts if part.name != "scales")
    q = normal(batch.nnz, HEADS, elements)[batch.local_rows]
    if row_format.has_layer_scale:
        q = q.to(torch.float8_e4m3fn)
    args = args_of(batch, row_format, rows, random_topk(batch, width)[batch.local_rows], q)
    scales = {"q_scale": 0.5, "kv_scale": 0.25} if row_format.has_layer_scale else {}
    return {**args, **scales}, rows


def rotated_codes(row: list[float], position: int, scale: float, style: RopeStyle) -> list[int]:
    """Codes of a rotated row: float32 products, their float32 sum, times the scale, one cast."""
    half = len(row) // 2
    table = cos_sin_table(position + 1, len(row), 1e4)[position].tolist()
    found = [0] * len(row)
    for i in range(half):
        first, second = (i, i + half) if style is RopeStyle.NEOX else (2 * i, 2 * i + 1)
        (a, b), cos, sin = (row[first], row[second]), table[i], table[half + i]
        found[first] = encode(float32(float32(float32(a * cos) - float32(b * sin)) * scale))
        found[second] = encode(float32(float32(float32(b * cos) + float32(a * sin)) * scale))
    return found


def rows_under_scale(row_format: RowFormat[Any, Any, Any], count: int, scale: float) -> Tensor:
    """Rows of zeros whose float32 scales are all one number: uint8 [count, row_bytes]."""
    rows, part = torch.zeros(count, row_format.row_bytes, dtype=torch.uint8), row_format.part("scales")
    rows[:, part.columns] = torch.full((count, part.count), scale).view(torch.uint8)
    return rows
