"""Keys of one request out of a paged pool, and the blocks of rows that the references work through."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

ROW_BLOCK = 128
"""Rows that the references compute at a time: enough for a matrix product, few enough for a [rows, keys] mask."""


class RowBlock(NamedTuple):
    """Rows of one request with similar lengths.

    Attributes:
        rows: int64 [n], indices of local rows.
        num_keys: keys that the longest of them sees; the first so many keys of the request serve all of them.
    """

    rows: Tensor
    num_keys: int


def slots_of_request(page_table: Tensor, request: int, num_keys: int, page_size: int) -> Tensor:
    """Return the slots of a request's first keys: int64 [num_keys].

    Args:
        page_table: int32 [num_requests, max_pages].
        request: which request.
        num_keys: keys wanted, in token order.
        page_size: slots of a page.
    """
    at = torch.arange(num_keys, device=page_table.device)
    return page_table[request].long()[at // page_size] * page_size + at % page_size


def row_blocks(request_of_row: Tensor, causal_lens: Tensor) -> Iterator[tuple[int, list[RowBlock]]]:
    """Yield each request with the blocks of its rows, shortest rows first; rows that see no key are in no block.

    Args:
        request_of_row: int32 [n].
        causal_lens: int32 [n].
    """
    seen = causal_lens > 0
    for request in request_of_row[seen].unique(sorted=True).tolist():  # type: ignore[no-untyped-call]
        rows = ((request_of_row == request) & seen).nonzero().flatten()
        rows = rows[causal_lens[rows].argsort(stable=True)]
        yield request, [RowBlock(block, int(causal_lens[block].max())) for block in rows.split(ROW_BLOCK)]
