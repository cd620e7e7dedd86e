"""Small batches on shuffled pages, and tensors branded as some stage before would have handed them on."""

import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dsa_contracts import Comm, CpBatch, Layout, brand_of, declare, declare_lasting
from dsa_contracts.core.marks import Plain
from dsa_contracts.dsa import states
from dsa_contracts.dsa.row_formats import bf16_format, fp8_656_format, fp8_format, index_bf16_format
from dsa_contracts.dsa.states import Global, KeyCounts, Local, Packed, Pool, Positions, RankMajor, RequestIds, Rotated, Table
from dsa_contracts.dsa.typevars import L
from dsa_cp.comm import SimulatedGroup
from dsa_cp.layouts import Zigzag, build_batches
from dsa_cp.numerics.rotation import cos_sin_table

HEADS, RANK, ROPE, INDEX_HEADS, INDEX_DIM, TOPK = 2, 8, 4, 2, 8, 3
SEED = 7
BF16, FP8, WIDE = bf16_format(RANK, ROPE), fp8_format(RANK, ROPE), fp8_656_format(128, ROPE)
INDEX = index_bf16_format(INDEX_DIM)
INDEX_TENSORS = (
    "positions",
    "causal_lens",
    "request_of_row",
    "local_rows",
    "padded_rows",
    "padded_index",
    "local_request_of_row",
    "gathered_rows",
    "restore_index",
    "out_cache_loc",
    "rank_major_loc",
    "page_table",
)
"""The index tensors of a batch."""


def normal(*shape: int, seed: int = SEED) -> Tensor:
    """Seeded bf16 values of scale 1."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def paged(extend: Sequence[int], prefix: Sequence[int], page_size: int) -> tuple[Tensor, Tensor, int]:
    """Slots of the new tokens, page table and number of pages; the pages lie shuffled and some belong to no request."""
    widths = [-(-(new + cached) // page_size) for new, cached in zip(extend, prefix, strict=True)]
    names = list(range(sum(widths) + 3))
    random.Random(SEED).shuffle(names)
    table = torch.zeros(len(widths), max(widths) + 1, dtype=torch.int32)
    slots: list[int] = []
    for request, (new, cached) in enumerate(zip(extend, prefix, strict=True)):
        pages = [names.pop() for _ in range(widths[request])]
        table[request, : len(pages)] = torch.tensor(pages)
        slots += [pages[at // page_size] * page_size + at % page_size for at in range(cached, cached + new)]
    return torch.tensor(slots), table, sum(widths) + 3


def batches(
    layout: Layout | None = None,
    cp_size: int = 2,
    extend: Sequence[int] = (7, 4),
    prefix: Sequence[int] = (2, 0),
    *,
    page_size: int = 4,
    **options: Any,
) -> tuple[CpBatch[Any], ...]:
    """Every rank's view of a batch with slots and pages; by default two requests on two ranks."""
    slots, table, _ = paged(extend, prefix, page_size)
    pool = {"out_cache_loc": slots, "page_table": table, "page_size": page_size}
    return build_batches(layout or Zigzag(), cp_size, extend, prefix, **{**pool, **options})


def num_pages(batch: CpBatch[Any]) -> int:
    return paged(batch.extend_lens, batch.prefix_lens, batch.page_size)[2]


def given(tensor: Tensor, rows: object, state: object, batch: CpBatch[Any]) -> Any:
    """A tensor as some stage before would have handed it on."""
    return declare(tensor, rows, state, batch, "test")


def local(tensor: Tensor, state: object, batch: CpBatch[L]) -> Any:
    return given(tensor, Local[L], state, batch)


def state_of(tensor: Tensor) -> object:
    """The state that a tensor's brand says."""
    found = brand_of(tensor)
    return None if found is None else found.kind.state


def packed(rows: Tensor, mark: Any, rope: Any, batch: CpBatch[Any]) -> Any:
    """This rank's packed rows of a format."""
    return local(rows, Packed[mark, rope], batch)


def gathered(tensor: Tensor, state: object, batch: CpBatch[L]) -> Any:
    return given(tensor, Global[RankMajor[L]], state, batch)


def in_sequence(tensor: Tensor, state: object, batch: CpBatch[L]) -> Any:
    return given(tensor, Global[states.Sequence], state, batch)


def pool_of(rows: Tensor, mark: Any) -> Any:
    return declare_lasting(rows, Pool, Packed[mark, Rotated], "pool")


def table_of(rows: Tensor) -> Any:
    return declare_lasting(rows, Table, Plain, "table")


def table_for(batch: CpBatch[Any], rope: int = ROPE) -> Any:
    return table_of(cos_sin_table(batch.max_seq_len, rope, 10000.0))


def bytes_of(values: Tensor) -> Tensor:
    return values.contiguous().view(torch.uint8)


def local_index(batch: CpBatch[Any]) -> tuple[Any, Any, Any]:
    """This rank's positions, causal lens and requests."""
    rows = batch.local_rows
    return (
        local(batch.positions[rows], Positions, batch),
        local(batch.causal_lens[rows], KeyCounts, batch),
        local(batch.request_of_row[rows], RequestIds, batch),
    )


def comm_of(batch: CpBatch[Any]) -> Comm:
    """This rank's end of a group whose other ranks do not run."""
    return SimulatedGroup(batch.cp_size).comm(batch.cp_rank)
