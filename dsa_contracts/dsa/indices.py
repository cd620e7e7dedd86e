"""Index tensors of a batch from the segments of its ranks: one piece of code for all layouts, which knows none of them.

Everything here is int64 on the CPU and has no loop over tokens or segments.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from dsa_contracts.core.tensors import describe_tensor
from dsa_contracts.dsa.codes import BatchError
from dsa_contracts.dsa.formulas import (
    INTS,
    TENSORS,
    causal_len_of,
    gathered_index,
    padded_size,
    position_of,
    real_tokens,
    row_of,
)
from dsa_contracts.dsa.layout import RankRows, SegmentTable


@dataclass(frozen=True)
class BatchLens:
    """Lengths of a batch, one entry a request: new tokens, cached tokens, new tokens with engine padding."""

    extend: Tensor
    prefix: Tensor
    padded: Tensor

    @property
    def first_row(self) -> Tensor:
        """The row of each request's first token."""
        return self.extend.cumsum(0) - self.extend


class RowFacts(NamedTuple):
    """What is known of each row, in sequence order: request, position and causal len."""

    request: Tensor
    position: Tensor
    causal_len: Tensor


class RankMajorRows(NamedTuple):
    """Rows of all ranks as they come out of the collective.

    Attributes:
        rows: `cp_size * nnz_padded` entries, the row at each place, -1 where it is padding.
        restore_index: where the written copy of each row stands.
    """

    rows: Tensor
    restore_index: Tensor


class Shards(NamedTuple):
    """The segments of all ranks, rank after rank."""

    rank: Tensor
    request: Tensor
    start: Tensor
    stop: Tensor
    written: Tensor


def row_facts(lens: BatchLens) -> RowFacts:
    """Return request, position and causal len of each row; one rank without a layout has the same."""
    request = torch.repeat_interleave(lens.extend)
    token = torch.arange(len(request)) - lens.first_row[request]
    position = position_of(lens.prefix[request], token)
    return RowFacts(request, position, causal_len_of(position))


def padded_rows(fullest: int, row_alignment: int) -> int:
    """Return `nnz_padded`, from the rows of the fullest rank, engine padding included."""
    return padded_size(fullest, row_alignment, INTS)


def counted_rows(tables: Sequence[SegmentTable], lens: BatchLens, layout_name: str) -> RankRows:
    """Return how many rows each rank holds, from its segments; no step here is a token's.

    Raises:
        BatchError: DSA303, the segments do not hold every row once where written, or hold tokens that do not exist.
    """
    shards = _shards(tables, lens, layout_name)
    real = real_tokens(shards.start, shards.stop, lens.extend[shards.request], TENSORS)
    first = row_of(lens.first_row[shards.request], shards.start)
    holds = shards.written & (real > 0)
    order = first[holds].argsort()
    starts, stops = first[holds][order], (first + real)[holds][order]
    nnz = int(lens.extend.sum())
    if not torch.equal(torch.cat((starts, starts.new_tensor([nnz]))), torch.cat((stops.new_tensor([0]), stops))):
        rank_major_rows(tables, lens, int((shards.stop - shards.start).sum()), layout_name)  # says which row
    zeros = torch.zeros(len(tables), dtype=torch.int64)
    counts = (real, shards.stop - shards.start)
    real_rows, all_rows = (tuple(zeros.index_add(0, shards.rank, count).tolist()) for count in counts)
    return RankRows(real_rows, all_rows)


def rank_major_rows(tables: Sequence[SegmentTable], lens: BatchLens, nnz_padded: int, layout_name: str) -> RankMajorRows:
    """Return what stands where after the collective.

    Args:
        tables: one a rank.
        lens: lengths of the batch.
        nnz_padded: rows of every rank in the collective.
        layout_name: for messages.

    Raises:
        BatchError: DSA303, the tables do not hold every row once where written, or hold tokens that do not exist.
    """
    shards = _shards(tables, lens, layout_name)
    count = shards.stop - shards.start
    segment = torch.repeat_interleave(count)
    token = shards.start[segment] + torch.arange(len(segment)) - (count.cumsum(0) - count)[segment]
    request, rank = shards.request[segment], shards.rank[segment]
    is_real = token < lens.extend[request]
    row = torch.where(is_real, row_of(lens.first_row[request], token), -1)

    rank_rows = torch.bincount(rank, minlength=len(tables))
    fullest = int(rank_rows.max())
    if fullest > nnz_padded:
        message = f"{layout_name} gives rank {int(rank_rows.argmax())} {fullest} rows, the collective has {nnz_padded} a rank"
        raise BatchError(message, code="DSA303")
    place = torch.arange(len(segment)) - (rank_rows.cumsum(0) - rank_rows)[rank]
    index = gathered_index(rank, nnz_padded, place)
    rows = torch.full((len(tables) * nnz_padded,), -1)
    rows[index] = row

    written = is_real & shards.written[segment]
    restore_index = _restore_index(row[written], index[written], lens, layout_name)
    return RankMajorRows(rows, restore_index)


def _shards(tables: Sequence[SegmentTable], lens: BatchLens, layout_name: str) -> Shards:
    """Join the tables of all ranks; raises BatchError DSA303 where one is malformed or outside of its requests."""
    for rank, table in enumerate(tables):
        _check_table(table, rank, layout_name)
    num_segments = torch.tensor([len(table.segments) for table in tables])
    request, start, stop = torch.cat([table.segments for table in tables]).unbind(1)
    written = torch.cat([table.written for table in tables])
    owner = torch.repeat_interleave(num_segments)
    known = (request >= 0) & (request < len(lens.padded))
    inside = known & (start >= 0) & (start < stop) & (stop <= lens.padded[torch.where(known, request, 0)])
    if not bool(inside.all()):
        bad = int((~inside).nonzero()[0])
        raise BatchError(
            f"{layout_name} gives rank {int(owner[bad])} the tokens {int(start[bad])}..{int(stop[bad]) - 1} "
            f"of request {int(request[bad])}, which the batch does not have",
            code="DSA303",
            facts=[("batch", f"padded_lens {lens.padded.tolist()}")],
        )
    return Shards(owner, request, start, stop, written)


def _check_table(table: SegmentTable, rank: int, layout_name: str) -> None:
    """Raise BatchError DSA303 unless the table is int64 [num_segments, 3] and bool [num_segments], on the CPU."""
    segments, written = table
    fits = segments.dtype == torch.int64 and segments.dim() == 2 and segments.shape[1] == 3
    fits = fits and written.dtype == torch.bool and written.shape == segments.shape[:1]
    if not fits or segments.device.type != "cpu" or written.device.type != "cpu":
        raise BatchError(
            f"{layout_name} gives rank {rank} a malformed segment table",
            code="DSA303",
            facts=[
                ("expected", "i64[num_segments, 3] and bool[num_segments] on the CPU"),
                ("got", f"{describe_tensor(segments)} and {describe_tensor(written)}"),
            ],
        )


def _restore_index(row: Tensor, index: Tensor, lens: BatchLens, layout_name: str) -> Tensor:
    """Return where each row's written copy stands; raises BatchError DSA303 where a row has no copy or several."""
    nnz = int(lens.extend.sum())
    copies = torch.bincount(row, minlength=nnz)
    wrong = (copies != 1).nonzero()
    if len(wrong):
        first = int(wrong[0])
        fault = "is lost" if copies[first] == 0 else "is doubled"
        raise BatchError(
            f"row {first} {fault}: {layout_name} has {int(copies[first])} written copies of it over all ranks, not 1",
            code="DSA303",
            facts=[("batch", f"extend_lens {lens.extend.tolist()}, padded_lens {lens.padded.tolist()}")],
        )
    restore_index = torch.empty(nnz, dtype=torch.int64)
    restore_index[row] = index
    return restore_index
