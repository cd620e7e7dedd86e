"""Layouts as somebody new to them could write them, each with one fault; the right one beside it where it is short."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dsa_contracts.dsa import formulas
from dsa_contracts.dsa.layout import SegmentTable
from dsa_cp.layouts import ChunkedLayout, Interleave, VllmReplicated, VllmZigzag, Zigzag

Tables = tuple[SegmentTable, ...]


def table(*segments: tuple[int, int, int], written: bool = True) -> SegmentTable:
    """A rank's segments."""
    rows = torch.tensor(segments, dtype=torch.int64).reshape(-1, 3)
    return SegmentTable(rows, torch.full((len(rows),), written))


class Named:
    """A layout under the name of its class."""

    @property
    def name(self) -> str:
        return type(self).__name__


class DropsTheLastToken(Named, Zigzag):
    """Drops the last token of each request and puts every row on rank 0; its formulas are zigzag's."""

    def segment_tables(self, padded_lens: Sequence[int], cp_size: int) -> Tables:
        kept = [(request, 0, length - 1) for request, length in enumerate(padded_lens) if length > 1]
        return (table(*kept), *(table() for _ in range(cp_size - 1)))


@dataclass(frozen=True)
class Even(Named, ChunkedLayout):
    """One chunk a rank, `ceil(length / cp_size)` tokens each: right, and no zigzag."""

    chunks_per_rank = 1

    def slot(self, slot: Any, num_requests: int, ops: Any) -> tuple[Any, Any]:
        return slot, 0 * slot

    def bounds(self, length: Any, cp_size: int, rank: Any, half: Any, ops: Any) -> tuple[Any, Any]:
        return self.start(length, cp_size, rank, ops), self.start(length, cp_size, rank + 1, ops)

    def start(self, length: Any, cp_size: int, rank: Any, ops: Any) -> Any:
        return formulas.equal_chunk_start(length, cp_size, rank, ops)


class LosesTheRemainder(Even):
    """Chunks of `length // cp_size` tokens."""

    def start(self, length: Any, cp_size: int, rank: Any, ops: Any) -> Any:
        return rank * ops.divide(length, cp_size)


class LosesShortRequests(Even):
    """Cuts the remainder into the last chunk, but only from one token a rank on."""

    def start(self, length: Any, cp_size: int, rank: Any, ops: Any) -> Any:
        end = ops.choose(length >= cp_size, length, 0)
        return ops.choose(rank >= cp_size, end, rank * ops.divide(length, cp_size))


class Overlaps(Even):
    """The last chunk is as long as the others: it starts before the end of the one in front of it."""

    def bounds(self, length: Any, cp_size: int, rank: Any, half: Any, ops: Any) -> tuple[Any, Any]:
        size = formulas.ceil_div(length, cp_size, ops)
        start = ops.smaller(rank * size, length - size)
        return start, start + size


class ForTwoRanks(Named, Zigzag):
    """cp_size is always two."""

    def bounds(self, length: Any, cp_size: int, rank: Any, half: Any, ops: Any) -> tuple[Any, Any]:
        return super().bounds(length, 2, rank, half, ops)


class RunsPastTheEnd(Even):
    """Chunks are not cut off at the length."""

    def start(self, length: Any, cp_size: int, rank: Any, ops: Any) -> Any:
        return rank * formulas.ceil_div(length, cp_size, ops)


class StopIsTheLastToken(Named, Zigzag):
    """Takes `stop` for the last token and not for the one after it."""

    def segment_tables(self, padded_lens: Sequence[int], cp_size: int) -> Tables:
        found = super().segment_tables(padded_lens, cp_size)
        return tuple(table(*[(request, start, stop - 1) for request, start, stop in each.listed()]) for each in found)


class TailBeforeHead(Named, Zigzag):
    """Lists the tails of all requests before their heads."""

    def segment_tables(self, padded_lens: Sequence[int], cp_size: int) -> Tables:
        found = super().segment_tables(padded_lens, cp_size)
        return tuple(
            table(*sorted(each.listed(), key=lambda segment: segment.start < padded_lens[segment.request] / 2))
            for each in found
        )


class RequestByRequest(Named, Zigzag):
    """Lists head and tail of a request together; zigzag has all heads and then all tails."""

    def segment_tables(self, padded_lens: Sequence[int], cp_size: int) -> Tables:
        return tuple(table(*sorted(each.listed())) for each in super().segment_tables(padded_lens, cp_size))


class RanksReversed(Named, Zigzag):
    """Counts the ranks from the last."""

    def segment_tables(self, padded_lens: Sequence[int], cp_size: int) -> Tables:
        return super().segment_tables(padded_lens, cp_size)[::-1]


class TablesForTwoRanks(Named, Zigzag):
    """Makes two tables for any number of ranks."""

    def segment_tables(self, padded_lens: Sequence[int], cp_size: int) -> Tables:
        return super().segment_tables(padded_lens, 2)


class EmptyRankCrashes(Named, Zigzag):
    """Does not expect a rank without a row."""

    def segment_tables(self, padded_lens: Sequence[int], cp_size: int) -> Tables:
        found = super().segment_tables(padded_lens, cp_size)
        longest = max(found, key=lambda each: each.listed()[0].stop)
        return tuple(found) if len(longest.segments) else ()


class RoundsUpToChunks(Named, Zigzag):
    """Counts padding as tokens: requests are cut as if they had a multiple of `2 * cp_size`."""

    def segment_tables(self, padded_lens: Sequence[int], cp_size: int) -> Tables:
        whole = [formulas.round_up(length, 2 * cp_size, formulas.INTS) for length in padded_lens]
        return super().segment_tables(whole, cp_size)


class OtherChunksThanItsFormulas(Named, Zigzag):
    """Segments are vLLM's equal chunks, formulas are remainder first."""

    def segment_tables(self, padded_lens: Sequence[int], cp_size: int) -> Tables:
        found = VllmZigzag().segment_tables(padded_lens, cp_size)
        return tuple(table(*sorted(each.listed(), key=lambda segment: segment.start > 0)) for each in found)


class DoublesARow(Named, Zigzag):
    """The first token of a long request is on the last rank as well."""

    def segment_tables(self, padded_lens: Sequence[int], cp_size: int) -> Tables:
        *most, last = super().segment_tables(padded_lens, cp_size)
        long = [(request, 0, 1) for request, length in enumerate(padded_lens) if length > 4]
        return (*most, table(*last.listed(), *long))


class HalfInt(Named, Zigzag):
    """Segments in int32."""

    def segment_tables(self, padded_lens: Sequence[int], cp_size: int) -> Tables:
        found = super().segment_tables(padded_lens, cp_size)
        return tuple(SegmentTable(segments.int(), written) for segments, written in found)


class TailsRise(Named, Zigzag):
    """A partition that is no zigzag: the last rank has the dearest tokens."""

    def bounds(self, length: Any, cp_size: int, rank: Any, half: Any, ops: Any) -> tuple[Any, Any]:
        chunk = rank + half * cp_size
        return formulas.chunk_start(length, 2 * cp_size, chunk, ops), formulas.chunk_start(
            length, 2 * cp_size, chunk + 1, ops
        )


class AllCopiesWrite(Named, VllmReplicated):
    """Two ranks write what all of them hold."""

    def written(self, length: Any, cp_size: int, rank: Any, ops: Any) -> Any:
        return ops.choose(formulas.is_replicated(length, cp_size, ops), ops.choose(rank >= 2, 0, 1), 1)


class DecodesOnOneRank(Named, VllmZigzag):
    """The code puts every decode on rank 0; its formulas deal them in turn."""

    def segment_tables_with_decodes(self, padded_lens: Sequence[int], cp_size: int, decodes: Sequence[bool]) -> Tables:
        if not any(decodes):
            return super().segment_tables_with_decodes(padded_lens, cp_size, decodes)
        prefills = [(request, length) for request, length in enumerate(padded_lens) if not decodes[request]]
        cut = self.segment_tables([length for _, length in prefills], cp_size) if prefills else (table(),) * cp_size
        listed = [[(prefills[request][0], start, stop) for request, start, stop in each.listed()] for each in cut]
        first = [(request, 0, length) for request, length in enumerate(padded_lens) if decodes[request]]
        return (table(*first, *listed[0]), *(table(*each) for each in listed[1:]))


@dataclass(frozen=True)
class BlockIgnored(Named, Interleave):
    """Deals single tokens, whatever the block."""

    block: int = 4

    def segment_tables(self, padded_lens: Sequence[int], cp_size: int) -> Tables:
        return Interleave().segment_tables(padded_lens, cp_size)


@dataclass(frozen=True)
class RestartsWithEachRequest(Named, Interleave):
    """Deals each request from rank 0 on; its formulas deal the flattened batch."""

    def segment_tables(self, padded_lens: Sequence[int], cp_size: int) -> Tables:
        alone = [super(RestartsWithEachRequest, self).segment_tables([length], cp_size) for length in padded_lens]
        return tuple(
            table(*[(request, start, stop) for request, found in enumerate(alone) for _, start, stop in found[rank].listed()])
            for rank in range(cp_size)
        )
