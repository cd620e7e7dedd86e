"""Properties of batches over random lengths, prefixes, paddings, group sizes and layouts."""

from dataclasses import dataclass

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsa_contracts.dsa.batch import CpBatch
from dsa_contracts.dsa.layout import Layout
from dsa_cp.layouts import Interleave, VllmReplicated, VllmZigzag, Zigzag, build_batch, build_batches


@dataclass(frozen=True)
class RandomBatch:
    layout: Layout
    cp_size: int
    extend_lens: list[int]
    prefix_lens: list[int]
    padded_lens: list[int]
    row_alignment: int
    decodes: list[bool]

    def build(self) -> tuple[CpBatch[Layout], ...]:
        return build_batches(
            self.layout,
            self.cp_size,
            self.extend_lens,
            self.prefix_lens,
            padded_lens=self.padded_lens,
            row_alignment=self.row_alignment,
            out_cache_loc=torch.randperm(sum(self.extend_lens)) + 7,
            decodes=self.decodes,
        )


@st.composite
def random_batches(draw: st.DrawFn) -> RandomBatch:
    blocks = st.sampled_from([1, 2, 3, 5, 16, 64])
    layout: Layout = draw(
        st.one_of(st.just(Zigzag()), st.just(VllmZigzag()), st.just(VllmReplicated()), st.builds(Interleave, blocks))
    )
    extend_lens = draw(st.lists(st.integers(1, 40), min_size=1, max_size=6))
    count = len(extend_lens)
    prefix_lens = draw(st.lists(st.integers(0, 200), min_size=count, max_size=count))
    padding = draw(st.lists(st.sampled_from([0, 0, 0, 1, 5]), min_size=count, max_size=count))
    padded_lens = [extend + more for extend, more in zip(extend_lens, padding, strict=True)]
    cp_size, alignment = draw(st.integers(1, 8)), draw(st.sampled_from([1, 2, 8]))
    decodes = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    return RandomBatch(layout, cp_size, extend_lens, prefix_lens, padded_lens, alignment, decodes)


random_ranks = given(batch=random_batches())
many = settings(max_examples=150)


@many
@random_ranks
def test_shard_then_gather_then_restore_is_the_identity(batch: RandomBatch) -> None:
    batches = batch.build()
    tokens = torch.arange(batches[0].nnz) * 3 + 1
    collective = []
    for rank in batches:
        shard = torch.full((rank.nnz_padded,), -5)
        shard[rank.padded_index] = tokens[rank.local_rows]
        collective.append(shard)
    gathered = torch.cat(collective)
    for rank in batches:
        assert torch.equal(gathered[rank.restore_index], tokens)
        is_row = rank.gathered_rows >= 0
        assert torch.equal(gathered[is_row], tokens[rank.gathered_rows[is_row]])
        assert bool((gathered[~is_row] == -5).all())


@many
@random_ranks
def test_positions_and_lengths_are_those_of_one_rank(batch: RandomBatch) -> None:
    one = build_batch(batch.layout, 1, 0, batch.extend_lens, batch.prefix_lens)
    expected = [
        prefix + token for prefix, extend in zip(batch.prefix_lens, batch.extend_lens, strict=True) for token in range(extend)
    ]
    for rank in batch.build():
        assert rank.positions.tolist() == one.positions.tolist() == expected
        assert rank.causal_lens.tolist() == one.causal_lens.tolist() == [position + 1 for position in expected]
        assert torch.equal(rank.request_of_row, one.request_of_row)
        assert torch.equal(rank.local_request_of_row, one.request_of_row[rank.local_rows])


@many
@random_ranks
def test_every_shard_fits_the_collective(batch: RandomBatch) -> None:
    batches = batch.build()
    tables = batch.layout.segment_tables_with_decodes(batch.padded_lens, batch.cp_size, batch.decodes)
    for rank, table in zip(batches, tables, strict=True):
        rows = sum(stop - start for _, start, stop in table.listed())
        assert rank.nnz_local == len(rank.local_rows) <= rows <= rank.nnz_padded
        assert rank.nnz_padded % batch.row_alignment == 0
        assert rank.nnz_padded == batches[0].nnz_padded
        assert bool((rank.padded_rows[rows:] == -1).all())
        assert torch.equal(rank.padded_rows[rank.padded_index], rank.local_rows)


@many
@random_ranks
def test_every_slot_is_written_once_with_its_own_row(batch: RandomBatch) -> None:
    batches = batch.build()
    slots, written = batches[0].out_cache_loc, batches[0].rank_major_loc
    assert slots is not None
    assert written is not None
    is_written = written >= 0
    assert torch.equal(written[is_written], slots[batches[0].gathered_rows[is_written]])
    assert torch.equal(written[is_written].sort().values, slots.sort().values)


@many
@random_ranks
def test_replicated_rows_are_written_by_rank_zero_and_others_by_their_only_rank(batch: RandomBatch) -> None:
    batches = batch.build()
    copies = torch.bincount(torch.cat([rank.local_rows for rank in batches]), minlength=batches[0].nnz)
    assert set(copies.tolist()) <= {1, batch.cp_size}
    if not isinstance(batch.layout, VllmReplicated):
        assert sum(batches[0].rank_lens) == batches[0].nnz
    writer = batches[0].restore_index // batches[0].nnz_padded
    assert bool((writer[copies > 1] == 0).all())


@many
@random_ranks
def test_rows_of_one_request_are_together_on_a_rank_in_ascending_halves(batch: RandomBatch) -> None:
    for rank in batch.build():
        for request in range(len(batch.extend_lens)):
            rows = rank.local_rows[rank.local_request_of_row == request]
            assert torch.equal(rows, rows.sort().values)
