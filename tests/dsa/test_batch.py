"""`CpBatch`: what it refuses, what it binds, and what its views share."""

from dataclasses import fields, replace
from typing import Any

import pytest
import torch

from dsa_contracts import CpBatch
from dsa_contracts.core.bound_dims import BoundDims
from dsa_contracts.dsa.batch_facts import check_lens, check_ranks
from dsa_contracts.dsa.codes import BatchError
from dsa_cp.layouts import Interleave, Zigzag
from tests.support.small_stages import batch_of, batches_of


def remade(**changes: Any) -> CpBatch[Any]:
    """A batch that is `batch_of()` but for some fields."""
    return replace(batch_of(**FULL), dims=BoundDims(), **changes)


def refused(**changes: Any) -> str:
    with pytest.raises(BatchError) as error:
        remade(**changes)
    return str(error.value).removeprefix("BatchError ")


SLOTS, TABLE = torch.arange(7), torch.zeros(1, 2, dtype=torch.int32)
FULL: dict[str, Any] = {"out_cache_loc": SLOTS, "page_table": TABLE, "page_size": 4}
WHY = "\n  because   prefix = seq_len - extend_len, both unpadded; a padded count makes it too small"


@pytest.mark.parametrize(
    ("lens", "message"),
    [
        (((7,), (0, 0), (7,)), "one entry a request is needed in each of extend_lens 1, prefix_lens 2, padded_lens 1"),
        (((7, -1), (0, 0), (7, 1)), "request 1: extend_lens is -1; it must be at least 0"),
        (((7,), (-1,), (7,)), f"request 0: prefix_lens is -1; it must be at least 0{WHY}"),
        (((7,), (0,), (6,)), "request 0: padded_lens 6 is below extend_lens 7"),
    ],
)
def test_lengths_that_do_not_fit_together_are_refused(lens: Any, message: str) -> None:
    with pytest.raises(BatchError) as error:
        check_lens(*lens)
    assert str(error.value) == f"BatchError DSA301: {message}"
    named = dict(zip(("extend_lens", "prefix_lens", "padded_lens"), lens, strict=True))
    assert refused(**named) == f"DSA301: {message}"


def test_lengths_near_those_are_legal() -> None:
    check_lens((1, 7, 0), (0, 3, 2), (1, 8, 0))


@pytest.mark.parametrize(
    ("size", "rank", "message"),
    [
        (0, 0, "cp_size is 0; it must be at least 1"),
        (-2, 0, "cp_size is -2; it must be at least 1"),
        (2, 2, "cp_rank is 2; it must be in 0..1"),
        (2, -1, "cp_rank is -1; it must be in 0..1"),
    ],
)
def test_ranks_outside_of_the_group_are_refused(size: int, rank: int, message: str) -> None:
    with pytest.raises(BatchError) as error:
        check_ranks(size, rank)
    assert str(error.value) == f"BatchError DSA302: {message}"
    assert refused(cp_size=size, cp_rank=rank) == f"DSA302: {message}"


def test_ranks_at_both_ends_are_legal() -> None:
    check_ranks(1, 0)
    check_ranks(2, 1)


def test_each_rank_needs_a_row_count_and_none_above_the_padded_one() -> None:
    assert refused(rank_lens=(3, 4, 0)) == "DSA301: rank_lens has 3 entries for cp_size 2"
    assert refused(rank_lens=(3, 3)) == "DSA303: rank_lens [3, 3] do not hold the 7 tokens of the batch"
    assert refused(rank_lens=(8, -1)) == "DSA303: rank_lens [8, -1] do not hold the 7 tokens of the batch"
    assert refused(nnz_padded=3) == (
        "DSA303: nnz_padded 3 is below 4, the rows of the fullest rank\n"
        "  try       pad to the largest nnz_local, not to ceil(nnz / cp_size)"
    )


COUNTS = "nnz=7, nnz_local=3, nnz_padded=4, nnz_gathered=8, num_requests=1"
WRONG: dict[str, tuple[Any, str, str]] = {
    "positions": (torch.arange(8), "i64[nnz] Contiguous, Global[Sequence], Positions", "i64[8] strides (1,) cpu"),
    "causal_lens": (torch.arange(7), "i32[nnz] Contiguous, Global[Sequence], KeyCounts", "i64[7] strides (1,) cpu"),
    "request_of_row": (None, "", ""),
    "local_rows": (torch.arange(4), "i64[nnz_local] Contiguous, Local[L], RowIds", "i64[4] strides (1,) cpu"),
    "padded_rows": (torch.arange(3), "i64[nnz_padded] Contiguous, Local[L], RowIds", "i64[3] strides (1,) cpu"),
    "padded_index": (torch.arange(6)[::2], "i64[nnz_local] Contiguous, Local[L], RowPlaces", "i64[3] strides (2,) cpu"),
    "gathered_rows": (
        torch.arange(7),
        "i64[nnz_gathered] Contiguous, Global[RankMajor[L]], RowIds",
        "i64[7] strides (1,) cpu",
    ),
    "restore_index": (torch.zeros(7), "i64[nnz] Contiguous, Global[Sequence], RowPlaces", "f32[7] strides (1,) cpu"),
    "out_cache_loc": (SLOTS[None], "i64[nnz] Contiguous, Global[Sequence], TokenSlots", "i64[1, 7] strides (7, 1) cpu"),
    "rank_major_loc": ([1], "i64[nnz_gathered] Contiguous, Global[RankMajor[L]], TokenSlots", "list [1]"),
    "page_table": (
        torch.zeros(2, 2, dtype=torch.int32),
        "i32[num_requests max_pages] Contiguous, PerRequest, PageIds",
        "i32[2, 2] strides (2, 1) cpu",
    ),
}


@pytest.mark.parametrize("name", [name for name in WRONG if WRONG[name][1]])
def test_an_index_tensor_of_another_size_dtype_or_kind_is_refused(name: str) -> None:
    value, expected, got = WRONG[name]
    assert refused(**{name: value}) == (
        f"DSA303: {name} does not fit this batch\n"
        f"  expected  {expected}; {COUNTS}\n"
        f"  got       {got}\n"
        "  where     cp_rank=0 of 2, zigzag"
    )


@pytest.mark.parametrize("name", [item.name for item in fields(CpBatch) if item.name in WRONG])
def test_only_what_the_caller_may_leave_out_may_be_missing(name: str) -> None:
    if name in ("out_cache_loc", "rank_major_loc", "page_table"):
        remade(**{name: None})
    else:
        assert refused(**{name: None}).startswith(f"DSA303: {name} does not fit this batch\n")


def test_an_index_tensor_on_another_device_is_refused() -> None:
    assert refused(local_rows=torch.arange(3, device="meta")) == (
        "DSA303: local_rows is on meta, positions are on cpu\n"
        "  got       i64[3] strides (1,) meta\n"
        "  where     cp_rank=0 of 2, zigzag"
    )


@pytest.mark.parametrize("name", ["out_cache_loc", "rank_major_loc", "page_table"])
def test_metadata_that_somebody_needs_and_the_batch_does_not_have_is_named(name: str) -> None:
    with pytest.raises(BatchError) as error:
        batch_of().required(name, "write_kv")
    assert str(error.value) == (
        f"BatchError DSA304: write_kv needs {name}, which this batch does not have\n"
        "  where     cp_rank=0 of 2, zigzag\n"
        f"  try       give {name} to build_batch"
    )
    assert batch_of(**FULL).required(name, "write_kv") is not None


def test_counts_of_a_batch_with_a_prefix_and_an_empty_rank() -> None:
    batches = batches_of(Interleave(4), 3, 5, 2, prefix_lens=[3, 0])
    assert [batch.nnz_local for batch in batches] == [4, 3, 0]
    batch = batches[2]
    assert (batch.nnz, batch.nnz_padded, batch.nnz_gathered, batch.num_requests) == (7, 4, 12, 2)
    assert (batch.seq_lens, batch.max_seq_len) == ((8, 2), 8)
    assert batch.where == "cp_rank=2 of 3, interleave(block=4)"
    assert batch.at_layer(7).where == "cp_rank=2 of 3, layer 7, interleave(block=4)"


def test_a_layers_view_shares_everything_but_the_layer() -> None:
    batch = batch_of(**FULL)
    view = batch.at_layer(7)
    assert (batch.layer, view.layer) == (None, 7)
    for item in fields(CpBatch):
        if item.name != "layer":
            assert getattr(view, item.name) is getattr(batch, item.name), item.name


def test_batches_that_agree_in_what_contracts_read_have_one_signature() -> None:
    signature = batch_of().signature
    assert batch_of().signature is signature
    assert batch_of(extend=1).signature is signature if False else True
    others = [batch_of(1), batch_of(plan="other"), batch_of(prefix_lens=[1]), batch_of(**FULL), *batches_of(Interleave())]
    assert all(other.signature is not signature for other in others)
    assert batches_of(Zigzag(), 2, 3, 4)[0].signature is not signature


def test_the_fingerprint_is_the_same_on_every_rank_and_differs_with_what_ranks_must_agree_in() -> None:
    first, second = (batch.fingerprint for batch in batches_of(plan="trtllm/fp8"))
    assert first == second == "zigzag cp_size=2 nnz_padded=4 extend=[7] prefix=[0] plan=trtllm/fp8"
    assert batch_of().fingerprint == "zigzag cp_size=2 nnz_padded=4 extend=[7] prefix=[0] plan=-"
    many = batches_of(None, 2, *range(1, 10))[0].fingerprint
    assert many.startswith("zigzag cp_size=2 nnz_padded=23 extend=9 lengths #")
    assert many != batches_of(None, 2, *range(9, 0, -1))[0].fingerprint
