"""Layouts that carry their symbolic half: formulas that give segments on tensors, and proofs on z3 terms.

A layout says which rank holds what in formulas, as methods that take an `Arithmetic`. The segments are made from them by
code that all layouts share; `dsa-cp prove` calls the same methods with z3 terms. Two shapes are known:

- `ChunkedLayout`: a rank holds runs of tokens of each request, as zigzags do;
- `DealtLayout`: the tokens of the flattened batch are dealt to the ranks, as interleaves do.

A layout may make its segments in another way (`segment_tables` is overridden), where that is faster: proofs compare what
it makes with its formulas first, and refuse it where they differ.
"""

from abc import abstractmethod
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, ClassVar

import torch
from torch import Tensor

from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.dsa.layout import Layout, SegmentTable
from dsa_cp.layouts import formulas
from dsa_cp.layouts.formulas import TENSORS, Arithmetic, T
from dsa_cp.layouts.tables import decode_flags, lens_tensor, segment_table


class Decodes(StrEnum):
    """Where a chunked layout puts a request that is marked as a decode.

    Members:
        AS_PREFILLS: it is cut as any other request.
        SHARDED: whole on one rank, decode d of the batch on rank `d % cp_size`, before the rank's prefills.
        REPLICATED: whole on every rank, before the rank's prefills; rank 0 is its one writer.
    """

    AS_PREFILLS = "as prefills"
    SHARDED = "sharded"
    REPLICATED = "replicated"


class ChunkSizes(StrEnum):
    """What a layout promises of the chunks of a request, for proofs: rank r holds chunk r from either end, and more.

    Members:
        ANY: nothing is promised; rows may be on any rank.
        EVEN: the first chunks are one token longer than the rest, none is longer by two.
        EQUAL: all have `ceil(length / (2 * cp_size))` tokens until none is left.
    """

    ANY = "any"
    EVEN = "even"
    EQUAL = "equal"


class ChunkedLayout(Layout):
    """A rank holds `chunks_per_rank` runs of each request, in the order of its slots; some may be empty.

    Attributes:
        chunks_per_rank: slots that a request has on a rank.
        decodes: where a request goes that is marked as a decode.
        chunk_sizes: what is promised of the chunks; more than ANY needs two chunks a rank.
    """

    chunks_per_rank: ClassVar[int] = 2
    decodes: ClassVar[Decodes] = Decodes.AS_PREFILLS
    chunk_sizes: ClassVar[ChunkSizes] = ChunkSizes.ANY

    @abstractmethod
    def slot(self, slot: T, num_requests: int, ops: Arithmetic[T]) -> tuple[T, T]:
        """Return request and half (0 to `chunks_per_rank - 1`) of a place in the list of a rank's runs."""

    @abstractmethod
    def bounds(self, length: T, cp_size: int, rank: T | int, half: T | int, ops: Arithmetic[T]) -> tuple[T, T]:
        """Return the first token of one run of a rank, and the token after its last."""

    def chunk_name(self, half: int, request: int) -> str:
        """Return which chunk of a request a half is, for people."""
        name = ("head chunk", "tail chunk")[half] if self.chunks_per_rank == 2 else f"chunk {half}"
        return f"{name} of request {request}"

    def replicates(self, length: T, cp_size: int, ops: Arithmetic[T]) -> Any:
        """Return whether every rank holds the whole request: a comparison, or False where it never is so."""
        return False

    def written(self, length: T, cp_size: int, rank: T | int, ops: Arithmetic[T]) -> T | int:
        """Return 1 where the rank is the writer of its rows of a request, else 0."""
        return 1

    def decode_bounds(
        self, length: T, ordinal: T | int, cp_size: int, rank: T | int, half: T | int, ops: Arithmetic[T]
    ) -> tuple[T, T]:
        """Return what `bounds` does, of a decode with `ordinal` decodes before it."""
        if self.decodes is Decodes.SHARDED:
            return formulas.sharded_decode_bounds(length, ordinal, cp_size, rank, half, ops)
        if self.decodes is Decodes.REPLICATED:
            return formulas.whole_bounds(length, half)
        return self.bounds(length, cp_size, rank, half, ops)

    def decode_written(self, length: T, cp_size: int, rank: T | int, ops: Arithmetic[T]) -> T | int:
        """Return what `written` does, of a decode."""
        if self.decodes is Decodes.AS_PREFILLS:
            return self.written(length, cp_size, rank, ops)
        return formulas.first_rank_writes(rank, ops) if self.decodes is Decodes.REPLICATED else 1

    def request_order(self, decodes: Sequence[bool]) -> list[int]:
        """Return the requests as slots name them: decodes first where they are told apart, else as in the batch."""
        requests = range(len(decodes))
        return list(requests) if self.decodes is Decodes.AS_PREFILLS else sorted(requests, key=lambda each: not decodes[each])

    def segment_tables(self, padded_lens: Sequence[int], cp_size: int) -> tuple[SegmentTable, ...]:
        """Return each rank's segments, from the formulas.

        Args:
            padded_lens: tokens of each request, engine padding included.
            cp_size: ranks.

        Raises:
            BatchError: DSA301 (lengths), DSA302 (cp_size).
        """
        return self._tables(lens_tensor(padded_lens, cp_size), cp_size, [False] * len(padded_lens))

    def segment_tables_with_decodes(
        self, padded_lens: Sequence[int], cp_size: int, decodes: Sequence[bool]
    ) -> tuple[SegmentTable, ...]:
        """Return each rank's segments of a batch in which some requests are decodes; see `Layout`.

        Raises:
            BatchError: DSA301 (lengths, or no flag a request), DSA302 (cp_size).
        """
        flags = decode_flags(decodes, len(padded_lens))
        if self.decodes is Decodes.AS_PREFILLS or not any(flags):
            return self.segment_tables(padded_lens, cp_size)
        return self._tables(lens_tensor(padded_lens, cp_size), cp_size, flags)

    def _tables(self, lens: Tensor, cp_size: int, decodes: list[bool]) -> tuple[SegmentTable, ...]:
        """Return the segments of all ranks; every value is made for [ranks, slots] at once."""
        count = len(lens)
        at, half = self.slot(torch.arange(self.chunks_per_rank * count), count, TENSORS)
        request = torch.tensor(self.request_order(decodes))[at]
        ranks, length = torch.arange(cp_size).unsqueeze(1), lens[request]
        start, stop = self.bounds(length, cp_size, ranks, half, TENSORS)
        written = torch.as_tensor(self.written(length, cp_size, ranks, TENSORS))
        if any(decodes):
            flags = torch.tensor(decodes)
            is_decode, ordinal = flags[request], (flags.cumsum(0) - flags.long())[request]
            decode_start, decode_stop = self.decode_bounds(length, ordinal, cp_size, ranks, half, TENSORS)
            start, stop = torch.where(is_decode, decode_start, start), torch.where(is_decode, decode_stop, stop)
            of_decode = torch.as_tensor(self.decode_written(length, cp_size, ranks, TENSORS))
            written = torch.where(is_decode, of_decode, written)
        start, stop, written = (each.expand(cp_size, len(request)) for each in (start, stop, written))
        return tuple(segment_table(request, start[rank], stop[rank], written[rank].bool()) for rank in range(cp_size))


class DealtLayout(Layout):
    """The tokens of the flattened batch, engine padding included, are dealt to the ranks and keep their order.

    Decodes are dealt as any other request.
    """

    @property
    def run(self) -> int:
        """Places in a row that hold tokens in a row, counted from place 0; 0 where this is no fixed number."""
        return 0

    @abstractmethod
    def owner(self, token: T, total: T | int, cp_size: int, ops: Arithmetic[T]) -> T:
        """Return the rank of a token of the `total` tokens of the batch."""

    @abstractmethod
    def count(self, length: T, total: T | int, cp_size: int, rank: T | int, ops: Arithmetic[T]) -> T:
        """Return how many of the first `length` of `total` tokens are on the rank: the place of token `length`, if it is."""

    @abstractmethod
    def token_at(self, place: T, total: T | int, cp_size: int, rank: T | int, ops: Arithmetic[T]) -> T:
        """Return the token at a local place of the rank."""

    def segment_tables(self, padded_lens: Sequence[int], cp_size: int) -> tuple[SegmentTable, ...]:
        """Return each rank's segments, from the formulas: its runs, cut at the borders of requests.

        Args:
            padded_lens: tokens of each request, engine padding included.
            cp_size: ranks.

        Raises:
            BatchError: DSA301 (lengths), DSA302 (cp_size).
        """
        lens = lens_tensor(padded_lens, cp_size)
        stops = lens.cumsum(0)
        return tuple(self._rank_table(stops - lens, stops[-1], cp_size, rank) for rank in range(cp_size))

    def _rank_table(self, firsts: Tensor, total: Tensor, cp_size: int, rank: int) -> SegmentTable:
        """Return one rank's segments, from the first token of each request and the tokens of the batch."""
        rows = self.count(total, total, cp_size, rank, TENSORS)
        borders = self.count(firsts, total, cp_size, rank, TENSORS)
        cuts = torch.unique(torch.cat((self._run_starts(int(rows), total, cp_size, rank), borders, rows.unsqueeze(0))))
        start = self.token_at(cuts[:-1], total, cp_size, rank, TENSORS)
        last = self.token_at(cuts[1:] - 1, total, cp_size, rank, TENSORS)
        request = torch.searchsorted(firsts, start, right=True) - 1
        return segment_table(request, start - firsts[request], last + 1 - firsts[request])

    def _run_starts(self, rows: int, total: Tensor, cp_size: int, rank: int) -> Tensor:
        """Return the places where runs start; where their length is not fixed, those whose token follows not the last."""
        if self.run:
            return torch.arange(0, rows, self.run)
        token = self.token_at(torch.arange(rows), total, cp_size, rank, TENSORS)
        return torch.cat((torch.zeros(1, dtype=torch.int64), 1 + (token[1:] != token[:-1] + 1).nonzero().squeeze(1)))


def symbolic_half(layout: Layout) -> ChunkedLayout | DealtLayout:
    """Return the layout as what carries its formulas.

    Raises:
        ArgumentError: DSA602, it carries none: nothing can be proven of it.
    """
    if isinstance(layout, ChunkedLayout | DealtLayout):
        return layout
    raise ArgumentError(
        f"layout {layout.name} has no symbolic half, so nothing can be proven of it",
        facts=[
            ("expected", "a ChunkedLayout or a DealtLayout of dsa_cp.layouts, which has its formulas as methods"),
            ("got", f"{type(layout).__name__}, which has segment tables alone"),
            (
                "try",
                "derive it from ChunkedLayout (write slot, bounds) or from DealtLayout (write owner, count, token_at)",
            ),
        ],
    )
