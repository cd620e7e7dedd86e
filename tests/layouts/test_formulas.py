"""The formulas against the segments and the index tensors, on every case up to a bound; and on tensors and z3 terms."""

from itertools import product
from typing import Any

import pytest
import torch

from dsa_contracts.dsa.layout import Layout, Segment
from dsa_cp.layouts import ChunkedLayout, Interleave, VllmReplicated, VllmZigzag, Zigzag, build_batches
from dsa_cp.layouts import formulas as f
from dsa_cp.layouts.formulas import INTS, TENSORS

ONE_REQUEST = [(length,) for length in range(1, 41)]
TWO_REQUESTS = list(product(range(1, 14), repeat=2))
THREE_REQUESTS = list(product((1, 2, 3, 5, 8, 9), repeat=3))
LENS = ONE_REQUEST + TWO_REQUESTS + THREE_REQUESTS


def z3_arithmetic() -> tuple[Any, f.Arithmetic[Any]]:
    z3 = pytest.importorskip("z3")

    def divide(value: Any, divisor: int) -> Any:
        return value // divisor if isinstance(value, int) else value / divisor

    def smaller(left: Any, right: Any) -> Any:
        return z3.If(left <= right, left, right)

    def larger(left: Any, right: Any) -> Any:
        return z3.If(left >= right, left, right)

    return z3, f.Arithmetic(divide, smaller, larger, z3.If)


@pytest.mark.parametrize("cp_size", [1, 2, 3, 4, 5])
def test_zigzag_segments_are_what_the_formulas_give_on_ints(cp_size: int) -> None:
    for lens in LENS:
        for rank, table in enumerate(Zigzag().segment_tables(lens, cp_size)):
            expected = []
            for slot in range(2 * len(lens)):
                request, half = f.zigzag_slot(slot, len(lens), INTS)
                expected.append(Segment(request, *f.zigzag_bounds(lens[request], cp_size, rank, half, INTS)))
            assert table.listed() == [segment for segment in expected if segment.start < segment.stop]
            assert table.written.all()


@pytest.mark.parametrize("layout", [VllmZigzag(), VllmReplicated()], ids=lambda layout: layout.name)
@pytest.mark.parametrize("cp_size", [1, 2, 3, 4, 5])
def test_vllm_segments_are_what_the_formulas_give_on_ints(cp_size: int, layout: ChunkedLayout) -> None:
    for lens in LENS:
        for rank, table in enumerate(layout.segment_tables(lens, cp_size)):
            expected = []
            for slot in range(2 * len(lens)):
                request, half = f.vllm_slot(slot, INTS)
                start, stop = layout.bounds(lens[request], cp_size, rank, half, INTS)
                if start < stop:
                    expected.append((request, start, stop, layout.written(lens[request], cp_size, rank, INTS) == 1))
            listed = table.listed()
            assert expected == [(*segment, written) for segment, written in zip(listed, table.written.tolist(), strict=True)]


@pytest.mark.parametrize("block", [1, 2, 3, 8])
@pytest.mark.parametrize("cp_size", [1, 2, 3, 4])
def test_interleave_segments_are_what_the_formulas_give_on_ints(cp_size: int, block: int) -> None:
    for lens in LENS:
        requests = [(request, token) for request, length in enumerate(lens) for token in range(length)]
        for rank, table in enumerate(Interleave(block).segment_tables(lens, cp_size)):
            owned = [i for i in range(sum(lens)) if f.interleave_owner(i, block, cp_size, INTS) == rank]
            assert len(owned) == f.interleave_count(sum(lens), block, cp_size, rank, INTS)
            assert owned == [f.interleave_token(place, block, cp_size, rank, INTS) for place in range(len(owned))]
            assert [f.interleave_count(i, block, cp_size, rank, INTS) for i in owned] == list(range(len(owned)))
            listed = table.listed()
            assert [requests[i] for i in owned] == [
                (request, token) for request, start, stop in listed for token in range(start, stop)
            ]
            blocks = {(request, (sum(lens[:request]) + start) // block) for request, start, _ in listed}
            assert len(blocks) == len(listed), "a block is cut at the borders of requests only"


@pytest.mark.parametrize(
    "layout", [Zigzag(), Interleave(), Interleave(3), VllmZigzag(), VllmReplicated()], ids=lambda layout: layout.name
)
def test_index_tensors_are_what_the_formulas_give_on_ints(layout: Layout) -> None:
    for lens, cp_size, alignment in product([(7,), (5, 5, 5), (1, 9, 3)], [1, 2, 3], [1, 4]):
        prefix_lens, padded_lens = tuple(range(len(lens))), (*lens[:-1], lens[-1] + 2)
        batch = build_batches(layout, cp_size, lens, prefix_lens, padded_lens=padded_lens, row_alignment=alignment)[0]
        tables = layout.segment_tables(padded_lens, cp_size)
        fullest = max(sum(stop - start for _, start, stop in table.listed()) for table in tables)
        nnz_padded = f.padded_size(fullest, alignment, INTS)
        gathered, restore, positions = [-1] * (cp_size * nnz_padded), [-1] * sum(lens), [-1] * sum(lens)
        rank_lens = [0] * cp_size
        for rank, table in enumerate(tables):
            place = 0
            for (request, start, stop), written in zip(table.listed(), table.written.tolist(), strict=True):
                real = f.real_tokens(start, stop, lens[request], INTS)
                rank_lens[rank] += real
                for token in range(start, start + real):
                    index = f.gathered_index(rank, nnz_padded, place + token - start)
                    row = f.row_of(sum(lens[:request]), token)
                    gathered[index] = row
                    restore[row] = index if written else restore[row]
                    positions[row] = f.position_of(prefix_lens[request], token)
                place += stop - start
        assert (batch.nnz_padded, list(batch.rank_lens)) == (nnz_padded, rank_lens)
        assert batch.gathered_rows.tolist() == gathered
        assert batch.restore_index.tolist() == restore
        assert batch.positions.tolist() == positions
        assert batch.causal_lens.tolist() == [f.causal_len_of(position) for position in positions]


@pytest.mark.parametrize(("rank", "expected"), [(0, [4, 5, 5]), (1, [4, 4, 5])])
def test_interleave_count_is_taken_from_the_global_length_each_time(rank: int, expected: list[int]) -> None:
    # B38: subtracting in local space gives [3, 4, 5] on rank 1.
    assert [f.interleave_count(length, 1, 2, rank, INTS) for length in (8, 9, 10)] == expected


def test_interleave_counts_of_all_ranks_are_the_length() -> None:
    for cp_size, block, length in product(range(1, 6), range(1, 6), range(60)):
        assert sum(f.interleave_count(length, block, cp_size, rank, INTS) for rank in range(cp_size)) == length


@pytest.mark.parametrize(
    ("start", "stop", "extend_len", "real"), [(0, 3, 5, 3), (3, 6, 5, 2), (5, 6, 5, 0), (6, 9, 5, 0), (0, 5, 5, 5)]
)
def test_real_tokens_are_those_before_the_padding(start: int, stop: int, extend_len: int, real: int) -> None:
    assert f.real_tokens(start, stop, extend_len, INTS) == real


@pytest.mark.parametrize(("rows", "alignment", "size"), [(9, 1, 9), (9, 4, 12), (8, 4, 8), (1, 8, 8)])
def test_padded_size_is_the_fullest_rank_rounded_up(rows: int, alignment: int, size: int) -> None:
    assert f.padded_size(rows, alignment, INTS) == size


def all_formulas(value: Any, small: Any, ops: f.Arithmetic[Any]) -> list[Any]:
    """Every formula that takes an `Arithmetic`, on a length and a smaller value of one kind."""
    return [
        f.ceil_div(value, 4, ops),
        f.round_up(value, 4, ops),
        f.clamp(value, 3, 9, ops),
        f.chunk_start(value, 4, small, ops),
        f.equal_chunk_start(value, 4, small, ops),
        *f.zigzag_slot(value, 3, ops),
        *f.zigzag_bounds(value, 2, small, 0, ops),
        *f.zigzag_bounds(value, 2, small, 1, ops),
        *f.vllm_slot(value, ops),
        *f.vllm_bounds(value, 2, small, 0, ops),
        *f.vllm_bounds(value, 2, small, 1, ops),
        *f.replicated_bounds(value, 2, small, 0, ops),
        *f.replicated_bounds(value, 2, small, 1, ops),
        f.replicated_written(value, 2, small, ops),
        f.first_rank_writes(small, ops),
        *f.whole_bounds(value, small),
        *f.sharded_decode_bounds(value, 5, 3, small + 1, small, ops),
        f.interleave_owner(value, 3, 2, ops),
        f.interleave_count(value, 3, 2, small, ops),
        f.interleave_token(value, 3, 2, small, ops),
        f.real_tokens(small, value, small + 2, ops),
        f.padded_size(value, 8, ops),
        f.gathered_index(small, 11, value),
        f.row_of(small, value),
        f.position_of(small, value),
        f.causal_len_of(value),
    ]


def test_formulas_give_tensors_what_they_give_ints() -> None:
    pairs = [(value, small) for value in range(1, 30) for small in (0, 1)]
    on_ints = [all_formulas(value, small, INTS) for value, small in pairs]
    value, small = torch.tensor(pairs).unbind(1)
    assert torch.stack(all_formulas(value, small, TENSORS), dim=1).tolist() == on_ints


def test_formulas_give_z3_terms_what_they_give_ints() -> None:
    z3, ops = z3_arithmetic()
    value, small = z3.Ints("value small")
    terms = all_formulas(value, small, ops)
    for numbers in product((1, 2, 3, 4, 7, 8, 9, 16, 23), (0, 1)):
        pairs = list(zip((value, small), map(z3.IntVal, numbers), strict=True))
        found = [z3.simplify(z3.substitute(term, *pairs)).as_long() for term in terms]
        assert found == all_formulas(*numbers, INTS)


def test_a_fact_for_all_lengths_can_be_proven_from_the_formulas() -> None:
    z3, ops = z3_arithmetic()
    length = z3.Int("length")
    rows = [
        sum(stop - start for start, stop in rank)
        for rank in ([f.zigzag_bounds(length, 3, rank, half, ops) for half in (0, 1)] for rank in range(3))
    ]
    solver = z3.Solver()
    solver.add(length >= 1, sum(rows) != length)
    assert solver.check() == z3.unsat
