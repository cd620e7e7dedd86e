"""The obligation that makes a cut a zigzag: a rank's two chunks of a request are equally far from its two ends.

A cut without it can be whole and still be another layout: one that gives the last rank the dearest tokens.
"""

from collections.abc import Iterator
from itertools import pairwise

from dsa_contracts.dsa.layout import Layout
from dsa_cp.layouts import ChunkedLayout, ChunkSizes, formulas
from dsa_cp.tools.prove.cut import Cut
from dsa_cp.tools.prove.goals import Fact, Goal, Obligation
from dsa_cp.tools.prove.terms import Ask, Claim, Term

Bounds = tuple[Term, Term]


def _chunks(cut: Cut, request: int) -> list[Bounds]:
    """Return the bounds of a request's chunks as they should follow one another: heads rising, then tails falling."""
    first, second = (slot for slot in range(2 * cut.num_requests) if cut.slots[slot][0] == request)
    ranks = range(cut.cp_size)
    return [cut.bounds(rank, first) for rank in ranks] + [cut.bounds(rank, second) for rank in reversed(ranks)]


def _follow(chunks: list[Bounds], length: Term) -> Iterator[Fact]:
    """Yield that chunks follow one another from 0 to the length, none longer than the one before."""
    yield Fact("first token of chunk 0", chunks[0][0], "=", 0)
    for index, (before, here) in enumerate(pairwise(chunks), start=1):
        yield Fact(f"first token of chunk {index}", here[0], "=", before[1])
        yield Fact(f"tokens of chunk {index - 1}", before[1] - before[0], ">=", here[1] - here[0])
    yield Fact("token after the last chunk", chunks[-1][1], "=", length)


def _sized(cut: Cut, length: Term, chunks: list[Bounds]) -> Iterator[Fact]:
    """Yield what the layout promises of the sizes of chunks."""
    first, last = (stop - start for start, stop in (chunks[0], chunks[-1]))
    if cut.chunked.chunk_sizes is ChunkSizes.EVEN:
        yield Fact("tokens of chunk 0", first, "<", last + 2)
        return
    yield Fact("tokens of chunk 0, times the chunks", len(chunks) * first, "<", length + len(chunks))
    for index, (start, stop) in enumerate(chunks):
        due = cut.logic.arithmetic.smaller(start + first, length)
        yield Fact(f"token after chunk {index}", stop, "=", due)


def mirrored(cut: Cut, ask: Ask) -> Iterator[Goal]:
    """Rank r holds chunk r from either end of a request that is cut, and its chunks have the sizes that are promised."""
    for request in range(cut.num_requests):
        length, chunks, about = cut.padded[request], _chunks(cut, request), f"request {request}"
        facts = (*_follow(chunks, length), *_sized(cut, length, chunks))
        is_whole = cut.chunked.replicates(length, cut.cp_size, cut.logic.arithmetic)
        if is_whole is False:
            yield Goal(about, (), facts)
            continue
        whole: Claim = cut.logic.choose(is_whole, 1, 0) == 1
        cut_up: Claim = cut.logic.choose(is_whole, 1, 0) == 0
        last = chunks[-1][1] - chunks[-1][0]
        yield Goal(about, (cut_up,), (*facts, Fact("tokens of the last chunk", last, ">=", 1)))
        yield Goal(f"{about}, replicated", (whole,), tuple(_copied(cut, length, chunks)))


def _copied(cut: Cut, length: Term, chunks: list[Bounds]) -> Iterator[Fact]:
    """Yield that every rank holds the whole request, which equal chunks would leave one of empty."""
    heads, tails = chunks[: cut.cp_size], chunks[cut.cp_size :]
    for start, stop in heads:
        yield Fact("first token of a copy", start, "=", 0)
        yield Fact("token after a copy", stop, "=", length)
    for start, stop in tails:
        yield Fact("tokens beside a copy", stop - start, "=", 0)
    start = formulas.equal_chunk_start(length, len(chunks), len(chunks) - 1, cut.logic.arithmetic)
    yield Fact("start of the last chunk, were it cut", start, "=", length)


def _promises_sizes(layout: Layout) -> bool:
    """Whether a layout promises anything of its chunks."""
    return isinstance(layout, ChunkedLayout) and layout.chunk_sizes is not ChunkSizes.ANY


CHUNKS_ARE_MIRRORED = Obligation(
    "chunks_are_mirrored",
    "rank r holds chunk r from either end of a request, chunks have the sizes promised, or all ranks hold the whole request",
    (mirrored,),
    applies=_promises_sizes,
)
