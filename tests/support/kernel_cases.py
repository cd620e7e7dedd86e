"""Inputs of the kernel tests: fresh random numbers each run, the same cases on a CPU and on a GPU."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import CpBatch
from dsa_contracts.dsa.row_formats import (
    RowFormat,
    bf16_format,
    fp8_656_format,
    fp8_format,
    index_bf16_format,
    index_fp8_format,
)
from dsa_cp import stages
from dsa_cp.kernels import flash_mla_kernels, flashinfer_kernels, portable, triton_kernels
from dsa_cp.layouts import Interleave, build_batch

HAS_GPU = torch.cuda.is_available()
GPU = pytest.mark.skipif(not HAS_GPU, reason="needs a CUDA device")
ON_GPU = pytest.param("cuda", marks=[pytest.mark.gpu, GPU])
DEVICES = ["cpu", ON_GPU]
FORMATS: dict[str, RowFormat[Any, Any, Any]] = {
    "bf16": bf16_format(),
    "fp8": fp8_format(),
    "fp8_656": fp8_656_format(),
}
POISON = 0x5A

# Tests hand plain tensors to stages, which mypy refuses by design.
references: Any = stages
triton_stages: Any = triton_kernels
flash_mla_stages: Any = flash_mla_kernels
flashinfer_stages: Any = flashinfer_kernels


def poison(device: str, num_bytes: int) -> None:
    """Leave garbage where the next outputs of about this size will be allocated, so that an unwritten byte shows."""
    if device == "cuda":
        for size in (num_bytes, num_bytes // 2, num_bytes // 8):
            torch.full((max(size, 1),), POISON, dtype=torch.uint8, device=device)


def normal(device: str, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Return normal numbers of a dtype."""
    return torch.randn(*shape, device=device).to(dtype)


def batch_of(rows: int, device: str, **metadata: Any) -> CpBatch[Interleave]:
    """Return a batch in which this rank holds `rows` rows of one request."""
    if rows == 0:
        return build_batch(Interleave(), 2, 1, (1,), (0,), device=device, **metadata)
    return build_batch(Interleave(), 1, 0, (rows,), (0,), device=device, **metadata)


def positions_of(batch: CpBatch[Interleave]) -> Tensor:
    """Return this rank's positions as a plain tensor."""
    return batch.positions.clone()[: batch.nnz_local]


def bytes_differ(got: Tensor, want: Tensor) -> int:
    """Return how many bytes of two tensors of one shape differ."""
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    return int((got.contiguous().view(torch.uint8).cpu() != want.contiguous().view(torch.uint8).cpu()).sum())


@dataclass
class AttendCase:
    """Arguments of `attend` behind q and before its scales, and the batch."""

    q: Tensor
    pool: Tensor
    topk: Tensor
    causal_lens: Tensor
    request_of_row: Tensor
    page_table: Tensor
    row_format: RowFormat[Any, Any, Any]
    batch: CpBatch[Interleave]

    def oracle(self, softmax_scale: float, q_scale: float, kv_scale: float) -> tuple[Tensor, Tensor]:
        """Return out and lse in float64 over gathered keys."""
        rank = self.row_format.part("k_nope").count
        group = 128 if self.row_format.name == "fp8_656" else 0
        tables = (self.topk, self.causal_lens, self.request_of_row, self.page_table)
        scales = (softmax_scale, q_scale, kv_scale)
        return portable.attend(self.q, self.pool, *tables, *scales, torch.float64, rank, group, dtype=torch.float64)


def keys_in(row_format: str, values: Tensor) -> Tensor:
    """Return packed rows of a format from bf16 values [n, 576]."""
    if row_format == "bf16":
        return values.view(torch.uint8)
    if row_format == "fp8":
        return values.float().clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)
    return portable.quantize_groups(values[:, :512], values[:, 512:].contiguous(), 128)


def attend_case(
    row_format: str, rows: int, heads: int, topk: int, device: str, q_dtype: torch.dtype, page_size: int = 64
) -> AttendCase:
    """Return up to three requests on shuffled pages; slots that hold no key are NaN in every format.

    Row 0 sees no key, row 1 names none, row 2 names every third, row 3 ends early, row 4 names keys past its length.
    """
    requests = min(3, rows)
    extends = [rows // requests] * (requests - 1) + [rows - (requests - 1) * (rows // requests)]
    each = max(3, 2 + -(-max(extends) // page_size))
    pages = each * requests + 3
    table = torch.randperm(pages, device=device)[: each * requests].view(requests, each).int()
    metadata = {"page_table": table, "page_size": page_size, "device": device}
    batch = build_batch(Interleave(), 1, 0, extends, (2 * page_size,) * requests, **metadata)  # type: ignore[arg-type]
    pool = torch.full((pages * page_size, FORMATS[row_format].row_bytes), 0xFF, dtype=torch.uint8, device=device)
    used = (table.long()[:, :, None] * page_size + torch.arange(page_size, device=device)).flatten()
    pool[used] = keys_in(row_format, normal(device, used.numel(), 576))
    keys = torch.randint(1, each * page_size, (rows,), device=device, dtype=torch.int32)
    entries = torch.rand(rows, max(topk, each * page_size), device=device).argsort(dim=1)[:, :topk].int()
    entries = torch.where(entries < keys[:, None], entries, -1)
    if rows > 4:
        keys[0] = 0
        entries[1] = -1
        entries[2, 1::3] = -1
        entries[3, topk // 2 :] = -1
        entries[4, :] = torch.arange(topk, device=device).int()
    return AttendCase(
        normal(device, rows, heads, 576, dtype=q_dtype),
        pool.view(pages, page_size, -1),
        entries.contiguous(),
        keys,
        batch.local_request_of_row.clone(),
        table,
        FORMATS[row_format],
        batch,
    )


@dataclass
class IndexCase:
    """Arguments of `select_topk` before its count, and the batch."""

    arguments: Any
    row_format: RowFormat[Any, Any, Any]
    batch: CpBatch[Interleave]


def index_case(rows: int, heads: int, row_format: str, topk: int, device: str, page_size: int = 64) -> IndexCase:
    """Return up to three requests on shuffled pages with prefixes; a third of the keys are equal, some are NaN.

    Row 0 sees no key, row 1 as many as it may choose, row 2 one more, row 3 scores every key 0. Behind the last page of each
    request the page table names pages that are none.
    """
    requests = max(1, min(3, rows))
    extends = [max(rows, 1) // requests] * (requests - 1) + [max(rows, 1) - (requests - 1) * (max(rows, 1) // requests)]
    prefixes = [topk + 5 * page_size * (at % 2) + at for at in range(requests)]
    each = -(-max(map(sum, zip(extends, prefixes, strict=True))) // page_size)
    table = torch.randperm(each * requests + 2, device=device)[: each * requests].view(requests, each).int()
    table = torch.cat([table, table.new_tensor([[-1, 1 << 30]]).expand(requests, 2)], dim=1).contiguous()
    batch = build_batch(Interleave(), 1, 0, extends, prefixes, page_table=table, page_size=page_size, device=device)
    keys = normal(device, (each * requests + 2) * page_size, 128)
    keys[::3], keys[5::101] = keys[0].clone(), float("nan")
    form = index_fp8_format() if row_format == "index_fp8" else index_bf16_format()
    packed = portable.quantize_groups(keys, None, 128) if form.is_quantized else keys.view(torch.uint8)
    lens = batch.causal_lens[:rows].clone()
    q, weights = normal(device, rows, heads, 128), normal(device, rows, heads, dtype=torch.float32)
    if rows > 4:
        lens[0], lens[1], lens[2] = 0, topk, topk + 1
        q[3] = 0
    tables = (lens, batch.request_of_row[:rows].clone(), table)
    return IndexCase((q, weights, packed.view(-1, page_size, form.row_bytes), *tables), form, batch)
