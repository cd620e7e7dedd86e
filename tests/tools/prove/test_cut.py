"""The composition on ints against the index tensors of real batches, on every case up to a bound.

What is proven is proven of this composition: here it is shown to be what `build_batches` does with tensors.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest
import torch

from dsa_contracts.dsa.batch import CpBatch
from dsa_contracts.dsa.layout import Layout
from dsa_cp.layouts import Interleave, VllmReplicated, VllmZigzag, Zigzag, build_batches, formulas, indices, symbolic_half
from dsa_cp.tools.prove.cut import Cut
from dsa_cp.tools.prove.right import RIGHT
from dsa_cp.tools.prove.terms import INT_LOGIC

LENS = [*((length,) for length in range(1, 41)), *product(range(1, 9), repeat=2), *product(range(1, 5), repeat=3)]


def remembered(rule: Callable[[Cut, int, int], int]) -> Callable[[Cut, int, int], int]:
    """A rule that is asked for the same request and token many times."""
    known: dict[tuple[int, int], int] = {}

    def value(cut: Cut, request: int, token: int) -> int:
        if (request, token) not in known:
            known[request, token] = rule(cut, request, token)
        return known[request, token]

    return value


def cut_of(layout: Layout, cp_size: int, lens: tuple[int, ...]) -> Cut:
    """A cut of these lengths with prefixes, paddings and an alignment that vary with them."""
    seed = sum(lens)
    prefix = tuple((seed * (request + 2)) % 4 for request in range(len(lens)))
    padded = tuple(length + (seed + 2 * request) % 3 for request, length in enumerate(lens))
    rules = replace(RIGHT, restore=remembered(RIGHT.restore))
    return Cut(layout, cp_size, lens, prefix, padded, 1 + seed % 3, INT_LOGIC, rules)


def real_batches(cut: Cut) -> tuple[CpBatch[Layout], ...]:
    """The batches of the same lengths; the slot of each row is its number."""
    return build_batches(
        cut.layout,
        cut.cp_size,
        cut.extend,
        cut.prefix,
        padded_lens=cut.padded,
        row_alignment=cut.row_alignment,
        out_cache_loc=torch.arange(sum(cut.extend)),
    )


def check_shards(cut: Cut, batches: tuple[CpBatch[Layout], ...]) -> None:
    """Rows by place, and what is looked up by row, on every rank."""
    for batch, pieces in zip(batches, cut.pieces, strict=True):
        padded_rows = [-1] * cut.nnz_padded
        slots = [-1] * cut.nnz_padded
        positions, causal_lens, requests = [], [], []
        for piece in pieces:
            for place in range(piece.first_place, piece.stop_place):
                token = piece.token(place)
                assert piece.holds(token)
                assert piece.place(token) == place
                slots[place] = cut.rules.slot_row(cut, piece, token)
                if token < cut.extend[piece.request]:
                    padded_rows[place] = cut.row(piece.request, token)
                    positions.append(cut.rules.position(cut, piece, token))
                    causal_lens.append(cut.rules.causal_len(cut, piece, token))
                    requests.append(piece.request)
        assert batch.padded_rows.tolist() == padded_rows
        assert batch.positions[batch.local_rows].tolist() == positions
        assert batch.causal_lens[batch.local_rows].tolist() == causal_lens
        assert batch.local_request_of_row.tolist() == requests
        assert batch.rank_major_loc is not None
        assert batch.rank_major_loc.view(cut.cp_size, -1)[batch.cp_rank].tolist() == slots


@pytest.mark.parametrize(
    "layout", [Zigzag(), Interleave(), Interleave(3), VllmZigzag(), VllmReplicated()], ids=lambda layout: layout.name
)
@pytest.mark.parametrize("cp_size", [2, 3, 4, 5])
def test_the_composition_on_ints_is_what_the_index_tensors_hold(layout: Layout, cp_size: int) -> None:
    for lens in LENS:
        cut = cut_of(layout, cp_size, lens)
        batches = real_batches(cut)
        batch = batches[0]
        assert batch.nnz_padded == cut.nnz_padded
        assert list(batch.rank_lens) == [cut.rules.rank_len(cut, rank) for rank in range(cp_size)]
        rows = [(request, token) for request, length in enumerate(lens) for token in range(length)]
        assert [cut.row(*row) for row in rows] == list(range(batch.nnz))
        assert batch.restore_index.tolist() == [cut.rules.restore(cut, *row) for row in rows]
        check_shards(cut, batches)


@pytest.mark.parametrize("layout", [Zigzag(), Interleave(2), VllmZigzag(), VllmReplicated()], ids=lambda layout: layout.name)
def test_the_pieces_of_a_rank_hold_the_tokens_of_its_segments_in_order(layout: Layout) -> None:
    for lens, cp_size in product([(1,), (7,), (9, 3), (2, 1, 8), (5, 5, 5)], [2, 3, 4, 5]):
        cut = cut_of(layout, cp_size, lens)
        for table, pieces in zip(layout.segment_tables(cut.padded, cp_size), cut.pieces, strict=True):
            pairs = zip(table.listed(), table.written.tolist(), strict=True)
            listed = [(each.request, token, written) for each, written in pairs for token in range(each.start, each.stop)]
            held = [
                (piece.request, piece.token(place), piece.written == 1)
                for piece in pieces
                for place in range(piece.first_place, piece.stop_place)
            ]
            assert held == listed


@pytest.mark.parametrize("block", [1, 2, 5])
def test_a_local_length_is_the_number_of_a_ranks_tokens_before_it(block: int) -> None:
    cut = cut_of(Interleave(block), 3, (20, 9))
    total = sum(cut.padded)
    owners = [formulas.interleave_owner(token, block, 3, formulas.INTS) for token in range(total)]
    for rank, length in product(range(3), range(total + 1)):
        assert cut.rules.local_len(cut, rank, length, total) == owners[:length].count(rank)


def test_layouts_and_index_tensors_use_the_formulas_that_are_proven() -> None:
    # A layout is proven by calling its own methods, and these make its segments; the index tensors have formulas of theirs.
    names = {"causal_len_of", "gathered_index", "padded_size", "position_of", "real_tokens", "row_of"}
    own = {name for name, value in vars(formulas).items() if getattr(value, "__module__", "") == formulas.__name__}
    assert own & set(vars(indices)) - {"INTS", "TENSORS"} == names
    assert all(vars(indices)[name] is vars(formulas)[name] for name in names)


@pytest.mark.parametrize("layout", [Zigzag(), Interleave(3), VllmZigzag(), VllmReplicated()], ids=lambda layout: layout.name)
def test_the_layouts_of_the_package_make_their_segments_from_their_formulas(layout: Layout) -> None:
    made = {"segment_tables", "segment_tables_with_decodes", "_tables", "_rank_table"}
    assert not made & set(vars(type(layout)))
    assert isinstance(symbolic_half(layout), type(layout))
