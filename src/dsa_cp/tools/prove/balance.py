"""The obligation that makes a cut a zigzag: a rank's two chunks of a request are equally far from its two ends.

A cut without it can be whole and still be another layout: one that gives the last rank the dearest tokens.
"""

from collections.abc import Iterator
from itertools import pairwise

from dsa_contracts.dsa import formulas
from dsa_cp.layouts import Interleave, VllmZigzag
from dsa_cp.tools.prove.cut import Cut
from dsa_cp.tools.prove.goals import Fact, Goal, Obligation
from dsa_cp.tools.prove.terms import Ask, Claim, Term

Bounds = tuple[Term, Term]


def _chunks(cut: Cut, request: int) -> list[Bounds]:
    """Return the bounds of a request's chunks as they should follow one another: heads rising, then tails falling."""
    first, second = (slot for slot in range(2 * cut.num_requests) if cut.slot(slot)[0] == request)
    ranks = range(cut.cp_size)
    return [cut.bounds(rank, first) for rank in ranks] + [cut.bounds(rank, second) for rank in reversed(ranks)]


def _follow(chunks: list[Bounds], length: Term) -> Iterator[Fact]:
    """Yield that chunks follow one another from 0 to the length, none longer than the one before."""
    yield Fact("first token of chunk 0", chunks[0][0], "=", 0)
    for index, (before, here) in enumerate(pairwise(chunks), start=1):
        yield Fact(f"first token of chunk {index}", here[0], "=", before[1])
        yield Fact(f"tokens of chunk {index - 1}", before[1] - before[0], ">=", here[1] - here[0])
    yield Fact("token after the last chunk", chunks[-1][1], "=", length)


def mirrored(cut: Cut, ask: Ask) -> Iterator[Goal]:
    """Rank r holds chunk r from either end: chunks of a request differ by one token, or are equal but for the last."""
    for request in range(cut.num_requests):
        length, chunks, about = cut.padded[request], _chunks(cut, request), f"request {request}"
        facts, (first, last) = tuple(_follow(chunks, length)), (chunks[0], chunks[-1])
        if not isinstance(cut.layout, VllmZigzag):
            spread = Fact("tokens of chunk 0", first[1] - first[0], "<", last[1] - last[0] + 2)
            yield Goal(about, (), (*facts, spread))
            continue
        is_cut: Claim = cut.rules.written(cut, 1, request) == 1
        equal = [Fact("tokens of a chunk", stop - start, "=", first[1] - first[0]) for start, stop in chunks[1:-1]]
        yield Goal(about, (is_cut,), (*facts, *equal, Fact("tokens of the last chunk", last[1] - last[0], ">=", 1)))
        start = formulas.equal_chunk_start(length, 2 * cut.cp_size, 2 * cut.cp_size - 1, cut.logic.arithmetic)
        heads, tails = chunks[: cut.cp_size], chunks[cut.cp_size :]
        whole = [Fact("first token of a copy", start, "=", 0) for start, _ in heads]
        whole += [Fact("token after a copy", stop, "=", length) for _, stop in heads]
        whole += [Fact("tokens beside a copy", stop - start, "=", 0) for start, stop in tails]
        would = Fact("start of the last chunk, were it cut", start, "=", length)
        yield Goal(f"{about}, replicated", (cut.rules.written(cut, 1, request) == 0,), (*whole, would))


CHUNKS_ARE_MIRRORED = Obligation(
    "chunks_are_mirrored",
    "rank r holds chunk r from either end of a request; vLLM's: no chunk is empty, or all ranks hold the whole request",
    (mirrored,),
    applies=lambda layout: not isinstance(layout, Interleave),
)
