"""Ties proofs to the code that runs: what a layout's code makes of sampled batches is what its formulas give on ints.

A proof is about formulas. That a layout's segments, and the index tensors made from them, are those of the formulas is
compared here, before anything is proven of the layout; a difference is a refutation, with the smallest batch found. What
is compared is sampled and not proven: a fault that no sampled length brings out is not seen.
"""

import random
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import NamedTuple

import torch

from dsa_contracts.core.errors import ContractError
from dsa_contracts.dsa.batch import CpBatch
from dsa_contracts.dsa.layout import Layout, Segment, SegmentTable
from dsa_cp.layouts import ChunkedLayout, Decodes, build_batches, symbolic_half
from dsa_cp.tools.prove.cut import Cut
from dsa_cp.tools.prove.held import table_text
from dsa_cp.tools.prove.results import Counterexample, Outcome, Result
from dsa_cp.tools.prove.right import RIGHT
from dsa_cp.tools.prove.samples import Sample, samples
from dsa_cp.tools.prove.terms import INT_LOGIC

NAME = "code_fits_formulas"
"""The name of what is compared, beside the names of obligations."""

_LOOKED_UP = 3
"""Rows of a batch, drawn anew for each, whose restore index, position and causal len are compared."""


class Difference(NamedTuple):
    """Where code and formulas part: what it is about, what it is, what the code gives and what the formulas give."""

    about: str
    what: str
    says: int | str
    right: int | str


class Row(NamedTuple):
    """A token as a rank holds it."""

    request: int
    token: int
    written: bool


def compare(layout: Layout, cp_size: int) -> Result:
    """Return that code and formulas of a layout agree on all samples of a group size, or where they differ.

    Raises:
        ArgumentError: DSA602, the layout has no formulas.
    """
    start, half = monotonic(), symbolic_half(layout)
    tells = isinstance(half, ChunkedLayout) and half.decodes is not Decodes.AS_PREFILLS
    asked = samples(cp_size, tells_decodes=tells)
    for number, sample in enumerate(asked, start=1):
        found = difference(layout, cp_size, sample)
        if found is not None:
            shown = _counterexample(*_smallest(layout, cp_size, sample, found))
            seconds, count = monotonic() - start, len(shown.extend_lens)
            return Result(NAME, layout.name, cp_size, count, Outcome.REFUTED, number, seconds, shown)
    return Result(NAME, layout.name, cp_size, None, Outcome.MATCHED, len(asked), monotonic() - start)


def _smallest(layout: Layout, cp_size: int, sample: Sample, found: Difference) -> tuple[Sample, Difference]:
    """Return a batch that still differs and of which no smaller one that was tried does."""
    for smaller in sample.smaller():
        still = difference(layout, cp_size, smaller)
        if still is not None:
            return _smallest(layout, cp_size, smaller, still)
    return sample, found


def _counterexample(sample: Sample, found: Difference) -> Counterexample:
    """Return a difference as what a refuted result shows."""
    lens = (sample.extend, sample.prefix, sample.padded)
    decodes = sample.decodes if any(sample.decodes) else ()
    return Counterexample(*lens, sample.row_alignment, found.about, (), found.what, found.says, "=", found.right, decodes)


def difference(layout: Layout, cp_size: int, sample: Sample) -> Difference | None:
    """Return the first difference of code and formulas on one batch, None where they agree."""
    lens = (sample.extend, sample.prefix, sample.padded)
    cut = Cut(layout, cp_size, *lens, sample.row_alignment, INT_LOGIC, RIGHT, sample.decodes)
    try:
        tables = layout.segment_tables_with_decodes(sample.padded, cp_size, sample.decodes)
    except Exception as error:  # noqa: BLE001 - whatever a layout's code dies of is what is to be shown
        return Difference("the layout", "its segments", _raised(error), f"{cp_size} segment tables")
    if len(tables) != cp_size:
        return Difference("the layout", "segment tables, one a rank", len(tables), cp_size)
    for rank, table in enumerate(tables):
        found = _table_difference(cut, rank, table)
        if found is not None:
            return found
    try:
        batches = build_batches(
            layout,
            cp_size,
            sample.extend,
            sample.prefix,
            padded_lens=sample.padded,
            row_alignment=sample.row_alignment,
            out_cache_loc=torch.arange(sum(sample.extend)),
            decodes=sample.decodes,
        )
    except ContractError as error:
        # Formulas that lose, double or invent rows are refuted by the proofs; what else is refused is the code's own fault.
        refused = Difference("the layout", "its index tensors", _raised(error), "those of its formulas")
        return refused if _is_whole(cut) else None
    return next(_index_differences(cut, batches), None)


def _raised(error: Exception) -> str:
    """Return type and first line of an error."""
    text = error.headline if isinstance(error, ContractError) else (str(error).splitlines() or [""])[0]
    return f"raises {type(error).__name__}: {text}"


def _table_difference(cut: Cut, rank: int, table: SegmentTable) -> Difference | None:
    """Return where the segments of a rank hold other rows than its pieces, or in another order."""
    says = [
        Row(segment.request, token, written)
        for segment, written in zip(table.listed(), table.written.tolist(), strict=True)
        for token in range(segment.start, segment.stop)
    ]
    right = [
        Row(piece.request, piece.token(place), piece.written == 1)
        for piece in cut.pieces[rank]
        for place in range(piece.first_place, piece.stop_place)
    ]
    if says == right:
        return None
    texts = (table_text(_table_of(rows), cut.extend) or "no rows" for rows in (says, right))
    return Difference(f"rank {rank}", "rows in local order", *texts)


def _table_of(rows: Sequence[Row]) -> SegmentTable:
    """Return rows as segments, each as long as tokens follow one another."""
    found: list[tuple[Segment, bool]] = []
    for row in rows:
        segment, written = found[-1] if found else (Segment(-1, 0, 0), False)
        if (segment.request, segment.stop, written) == row:
            found[-1] = (segment._replace(stop=row.token + 1), written)
        else:
            found.append((Segment(row.request, row.token, row.token + 1), row.written))
    segments = torch.tensor([segment for segment, _ in found], dtype=torch.int64).reshape(-1, 3)
    return SegmentTable(segments, torch.tensor([written for _, written in found], dtype=torch.bool))


def _is_whole(cut: Cut) -> bool:
    """Whether each token has one written copy and no other token is held, by the formulas."""
    places = ((piece, place) for piece in cut.all_pieces for place in range(piece.first_place, piece.stop_place))
    inside = all(0 <= piece.token(place) < cut.padded[piece.request] for piece, place in places)
    tokens = ((request, token) for request, length in enumerate(cut.extend) for token in range(length))
    copies = (sum(piece.written for piece in cut.pieces_of(request) if piece.holds(at)) for request, at in tokens)
    return inside and set(copies) == {1}


def _index_differences(cut: Cut, batches: Sequence[CpBatch[Layout]]) -> Iterator[Difference]:
    """Yield where index tensors are not what the composition gives: sizes, rows by place, and drawn rows looked up."""
    first = batches[0]
    if first.nnz_padded != cut.nnz_padded:
        yield Difference("the batch", "nnz_padded", first.nnz_padded, cut.nnz_padded)
    for rank, batch in enumerate(batches):
        if batch.nnz_local != cut.rules.rank_len(cut, rank):
            yield Difference(f"rank {rank}", "nnz_local", batch.nnz_local, cut.rules.rank_len(cut, rank))
        places = [-1] * cut.nnz_padded
        for piece in cut.pieces[rank]:
            for place in range(piece.first_place, piece.first_place + piece.real):
                places[place] = cut.row(piece.request, piece.token(place))
        if batch.padded_rows.tolist() != places:
            yield Difference(f"rank {rank}", "padded_rows", str(batch.padded_rows.tolist()), str(places))
    yield from _looked_up(cut, first)


def _looked_up(cut: Cut, batch: CpBatch[Layout]) -> Iterator[Difference]:
    """Yield what differs of some rows: restore index, position, causal len, and the slot at each copy's place."""
    rows = [(request, token) for request, length in enumerate(cut.extend) for token in range(length)]
    loc = batch.rank_major_loc
    for request, token in random.Random(len(rows)).sample(rows, min(_LOOKED_UP, len(rows))):
        row, about = cut.row(request, token), f"request {request}, token {token}"
        looked_up = {
            "restore_index": (batch.restore_index[row], cut.rules.restore(cut, request, token)),
        }
        for piece in cut.pieces_of(request):
            if piece.holds(token):
                looked_up["position"] = (batch.positions[row], cut.rules.position(cut, piece, token))
                looked_up["causal_len"] = (batch.causal_lens[row], cut.rules.causal_len(cut, piece, token))
                if loc is not None:
                    at = loc[cut.gathered_index(piece, token)]
                    looked_up[f"slot on rank {piece.rank}"] = (at, cut.rules.slot_row(cut, piece, token))
        for what, (says, right) in looked_up.items():
            if int(says) != right:
                yield Difference(about, what, int(says), right)
