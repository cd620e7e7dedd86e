"""`build_batches` and `build_batch`: what is in a batch, and what its ranks share."""

from typing import Any, assert_type

import pytest
import torch

from dsa_contracts.core.brands import brand_of
from dsa_contracts.dsa.batch import CpBatch
from dsa_contracts.dsa.layout import Layout
from dsa_cp.layouts import Interleave, VllmZigzag, Zigzag, build_batch, build_batches
from tests.support.branded import INDEX_TENSORS


def full_batches(layout: Layout | None = None, cp_size: int = 2) -> tuple[CpBatch[Layout], ...]:
    return build_batches(
        layout or Zigzag(),
        cp_size,
        [5, 3],
        [2, 0],
        out_cache_loc=torch.arange(10, 18),
        page_table=torch.tensor([[3, 4], [5, 0]], dtype=torch.int32),
        page_size=4,
        plan="rope_quantize_gather",
    )


def test_a_batch_has_the_type_of_its_layout() -> None:
    assert_type(build_batches(Zigzag(), 2, [4]), tuple[CpBatch[Zigzag], ...])
    assert_type(build_batch(Interleave(2), 2, 0, [4]), CpBatch[Interleave])


def test_facts_of_the_batch_are_carried() -> None:
    batch = full_batches()[1]
    assert (batch.layout, batch.cp_size, batch.cp_rank, batch.plan) == (Zigzag(), 2, 1, "rope_quantize_gather")
    assert (batch.extend_lens, batch.prefix_lens, batch.padded_lens) == ((5, 3), (2, 0), (5, 3))
    assert (batch.nnz, batch.nnz_local, batch.nnz_padded, batch.rank_lens) == (8, 4, 4, (4, 4))
    assert batch.page_size == 4


def test_index_tensors_of_a_small_batch() -> None:
    first, second = full_batches()
    assert first.positions.tolist() == [2, 3, 4, 5, 6, 0, 1, 2]
    assert first.causal_lens.tolist() == [3, 4, 5, 6, 7, 1, 2, 3]
    assert first.request_of_row.tolist() == [0, 0, 0, 0, 0, 1, 1, 1]
    assert (first.local_rows.tolist(), second.local_rows.tolist()) == ([0, 1, 5, 4], [2, 6, 3, 7])
    assert (first.local_request_of_row.tolist(), second.local_request_of_row.tolist()) == ([0, 0, 1, 0], [0, 1, 0, 1])
    assert first.gathered_rows.tolist() == [0, 1, 5, 4, 2, 6, 3, 7]
    assert first.restore_index.tolist() == [0, 1, 4, 6, 3, 2, 5, 7]
    assert first.rank_major_loc is not None
    assert first.rank_major_loc.tolist() == [10, 11, 15, 14, 12, 16, 13, 17]


@pytest.mark.parametrize("layout", [Zigzag(), Interleave(2), VllmZigzag()], ids=lambda layout: layout.name)
def test_build_batch_is_one_of_build_batches(layout: Layout) -> None:
    options: dict[str, Any] = {"padded_lens": [6, 1, 9], "row_alignment": 4, "out_cache_loc": torch.arange(15)}
    for rank, batch in enumerate(build_batches(layout, 3, [6, 1, 8], [0, 4, 2], **options)):
        alone = build_batch(layout, 3, rank, [6, 1, 8], [0, 4, 2], **options)
        assert (alone.cp_rank, alone.rank_lens, alone.nnz_padded) == (rank, batch.rank_lens, batch.nnz_padded)
        assert alone.fingerprint == batch.fingerprint
        for name in INDEX_TENSORS[:-1]:
            assert torch.equal(getattr(alone, name), getattr(batch, name)), name


def test_ranks_share_memory_but_no_tensor_object() -> None:
    first, second = full_batches()
    for name in INDEX_TENSORS:
        ours, theirs = getattr(first, name), getattr(second, name)
        assert ours is not theirs, name
        shared = name not in ("local_rows", "padded_rows", "padded_index", "local_request_of_row")
        assert (ours.data_ptr() == theirs.data_ptr()) is shared, name


def test_each_ranks_tensors_carry_its_own_brand() -> None:
    for batch in full_batches():
        for name in INDEX_TENSORS:
            found = brand_of(getattr(batch, name))
            assert found is not None, name
            assert found.scope_token is batch.token, name
            assert found.kind.producer == f"batch.{name}"


def test_the_callers_tensors_stay_without_brand() -> None:
    slots = torch.arange(4)
    for _ in range(2):
        batch = build_batch(Zigzag(), 1, 0, [4], out_cache_loc=slots)
        assert brand_of(slots) is None
        assert batch.out_cache_loc is not None
        assert batch.out_cache_loc.data_ptr() == slots.data_ptr()


def test_optional_tensors_are_none_where_not_given() -> None:
    batch = build_batch(Interleave(), 2, 0, [3])
    assert (batch.out_cache_loc, batch.rank_major_loc, batch.page_table) == (None, None, None)


def test_rows_of_every_rank_are_rounded_up_to_the_alignment() -> None:
    batches = build_batches(Zigzag(), 2, [7], row_alignment=4)
    assert [batch.padded_rows.tolist() for batch in batches] == [[0, 1, 6, -1], [2, 3, 4, 5]]
    batches = build_batches(Zigzag(), 2, [7], row_alignment=3)
    assert [batch.padded_rows.tolist() for batch in batches] == [[0, 1, 6, -1, -1, -1], [2, 3, 4, 5, -1, -1]]
    assert batches[0].restore_index.tolist() == [0, 1, 6, 7, 8, 9, 2]


def test_more_ranks_than_tokens_is_a_batch() -> None:
    batches = build_batches(Interleave(), 8, [1, 2])
    assert batches[0].rank_lens == (1, 1, 1, 0, 0, 0, 0, 0)
    assert [batch.padded_rows.tolist() for batch in batches] == [[0], [1], [2], [-1], [-1], [-1], [-1], [-1]]
    assert batches[7].local_rows.shape == (0,)


def test_index_tensors_have_the_dtypes_of_the_batch() -> None:
    batch = full_batches()[0]
    int32 = {name for name in INDEX_TENSORS if getattr(batch, name).dtype == torch.int32}
    assert int32 == {"causal_lens", "request_of_row", "local_request_of_row", "page_table"}
    assert {getattr(batch, name).dtype for name in INDEX_TENSORS} == {torch.int32, torch.int64}


def test_tensors_go_to_the_device_named_and_else_to_that_of_the_slots() -> None:
    slots = torch.arange(4, device="meta")
    assert full_batches()[0].device == torch.device("cpu")
    assert build_batch(Zigzag(), 2, 0, [4], out_cache_loc=slots).device == torch.device("meta")
    assert build_batch(Zigzag(), 2, 0, [4], device="meta").local_rows.device == torch.device("meta")
