"""Batches from an engine's segments, counts, slots and index tensors: what they hold and refuse, when tensors are made."""

import copy
import pickle
import subprocess
import sys
import threading
from typing import Any

import pytest
import torch

from dsa_contracts import CpBatch, GivenLayout, RowCounts, SlotOrder
from dsa_contracts.core.errors import ContractError
from dsa_contracts.dsa.codes import BatchError
from dsa_contracts.dsa.index_source import IndexSource
from dsa_contracts.dsa.layout import Layout, RankRows
from dsa_contracts.dsa.slots import is_written, with_negatives_for_skipped
from dsa_cp.layouts import Interleave, VllmReplicated, VllmZigzag, Zigzag, build_batch, build_batches

# Four tokens on two ranks, as zigzag cuts them: rank 0 holds 0 and 3, rank 1 holds 1 and 2.
SEGMENTS = [[(0, 0, 1), (0, 3, 4)], [(0, 1, 3)]]


def engine_batch(rank: int = 0, **options: Any) -> CpBatch[GivenLayout]:
    return CpBatch.from_engine(GivenLayout.from_lists("engine zigzag", SEGMENTS), 2, rank, [4], **options)


def refused(**options: Any) -> str:
    with pytest.raises(ContractError) as error:
        engine_batch(**options)
    return str(error.value).splitlines()[0]


def made_tensors(batch: CpBatch[Any]) -> list[str]:
    return sorted(name for name, tensor in batch.made.items() if tensor is not None)


def test_the_segments_of_an_engine_make_the_batch_that_the_layout_makes() -> None:
    for rank, ours in enumerate(build_batches(Zigzag(), 2, [4])):
        batch = engine_batch(rank)
        for name in ("positions", "local_rows", "padded_rows", "gathered_rows", "restore_index", "local_request_of_row"):
            assert torch.equal(getattr(batch, name), getattr(ours, name)), name


def test_rows_of_the_shard_and_of_the_collective_are_two_numbers() -> None:
    batch = engine_batch(1, rows=RowCounts(shard=4, collective=3))
    assert (batch.nnz_local, batch.nnz_padded, batch.nnz_shard, batch.nnz_gathered) == (2, 3, 4, 6)
    assert (batch.shard_rows.tolist(), batch.padded_rows.tolist()) == ([1, 2, -1, -1], [1, 2, -1])
    assert batch.dims.value("nnz_shard") == 4
    assert batch.dims.value("nnz_engine") is None


def test_a_batch_without_an_engines_rows_has_the_dims_that_it_always_had() -> None:
    assert set(engine_batch().dims.dims) == {"nnz", "nnz_local", "nnz_padded", "nnz_gathered", "num_requests"}


def test_rows_that_an_engine_carries_beyond_the_tokens_are_padding_of_the_last_request() -> None:
    layout = GivenLayout.from_lists("engine", [[(0, 0, 2), (1, 0, 1)], [(1, 1, 4)]])
    slots = torch.tensor([5, 6, 7, 8, 9, 0])
    batch = CpBatch.from_engine(layout, 2, 1, [2, 3], rows=RowCounts(engine=6), out_cache_loc=slots, skip=0)
    assert (batch.padded_lens, batch.rank_lens, batch.nnz_padded) == ((2, 4), (3, 2), 3)
    assert batch.engine_rows.tolist() == [0, 1, 2, 3, 4, -1]
    assert batch.padded_rows.tolist() == [3, 4, -1]
    assert batch.engine_loc is not None
    assert batch.out_cache_loc is not None
    assert batch.rank_major_loc is not None
    assert batch.engine_loc.tolist() == slots.tolist()
    assert batch.out_cache_loc.tolist() == [5, 6, 7, 8, 9]
    assert batch.rank_major_loc.tolist() == [5, 6, 7, 8, 9, 0]


@pytest.mark.parametrize("skip", [-1, 0])
def test_slots_in_rank_major_order_are_those_of_the_rows(skip: int) -> None:
    batch = engine_batch(
        rows=RowCounts(collective=3),
        out_cache_loc=torch.tensor([4, 7, skip, 5, 6, skip]),
        order=SlotOrder.RANK_MAJOR,
        skip=skip,
    )
    assert batch.out_cache_loc is not None
    assert batch.out_cache_loc.tolist() == [4, 5, 6, 7]


def test_slots_come_later_and_change_nothing_else() -> None:
    batch = engine_batch()
    positions = batch.positions
    later = batch.with_slots(torch.tensor([4, 5, 6, 7]), skip=0)
    assert later.token is batch.token
    assert later.dims is batch.dims
    assert later.positions is positions
    assert (batch.out_cache_loc, batch.slot_skip, later.slot_skip) == (None, -1, 0)
    assert later.rank_major_loc is not None
    assert later.rank_major_loc.tolist() == [4, 7, 5, 6]
    again = later.with_slots(torch.tensor([8, 9, 10, 11]))
    assert again.rank_major_loc is not None
    assert again.rank_major_loc.tolist() == [8, 11, 9, 10]


def test_what_a_writer_passes_over_is_told_by_the_skip_value() -> None:
    loc = torch.tensor([-3, -1, 0, 70])
    assert is_written(loc, -1).tolist() == [False, False, True, True]
    assert is_written(loc, 0).tolist() == [False, False, False, True]
    assert with_negatives_for_skipped(loc, -1) is loc
    assert with_negatives_for_skipped(loc, 0).tolist() == [-3, -1, -1, 70]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": RowCounts(shard=1)}, "BatchError DSA303: the shard has 1 rows, this rank holds 2 tokens"),
        ({"rows": RowCounts(engine=3)}, "BatchError DSA303: the engine carries 3 rows, the batch has 4 tokens"),
        (
            {"rows": RowCounts(collective=1)},
            "BatchError DSA303: the collective has 1 rows a rank, the fullest rank holds 2 with its padding",
        ),
        ({"out_cache_loc": torch.arange(5)}, "BatchError DSA301: out_cache_loc has 5 slots, not 4"),
        ({"padding": "none"}, "ArgumentError DSA602: padding is 'none'; it must be zero or ignored"),
        ({"out_cache_loc": torch.arange(4), "owned": torch.arange(4)}, "BatchError DSA303: owned does not fit this batch"),
        ({"indices": {"positions": torch.arange(3)}}, "BatchError DSA303: positions does not fit this batch"),
    ],
)
def test_counts_and_tensors_that_do_not_hold_the_batch_are_refused(options: Any, message: str) -> None:
    assert refused(**options) == message


def test_an_index_tensor_that_there_is_not_is_named() -> None:
    assert refused(indices={"rows": torch.arange(4)}).startswith(
        "ArgumentError DSA602: indices has 'rows'; it may have positions,"
    )


def test_segments_that_lose_a_row_are_refused_when_the_batch_is_made() -> None:
    layout = GivenLayout.from_lists("engine", [[(0, 0, 1)], [(0, 2, 4)]])
    with pytest.raises(BatchError) as error:
        CpBatch.from_engine(layout, 2, 0, [4])
    assert error.value.headline == "row 1 is lost: engine has 0 written copies of it over all ranks, not 1"


def test_rows_of_the_ranks_are_turned_into_segments() -> None:
    layout = GivenLayout.from_rows("engine", [[0, 1, 5, 4, -1], [2, 3, 6]], [4, 3])
    assert [table.segments.tolist() for table in layout.tables] == [
        [[0, 0, 2], [1, 1, 2], [1, 0, 1]],
        [[0, 2, 4], [1, 2, 3]],
    ]
    for rows in ([0, -1, 1], [7]):
        with pytest.raises(BatchError) as error:
            GivenLayout.from_rows("engine", [rows], [4, 3])
        assert error.value.headline == f"engine: rows {rows} of rank 0 are no rows of this batch"


def test_given_layouts_are_equal_by_name() -> None:
    first, second = GivenLayout.from_lists("a", SEGMENTS), GivenLayout.from_lists("a", [[(0, 0, 4)], []])
    assert first == second
    assert hash(first) == hash(second)
    assert first != GivenLayout.from_lists("b", SEGMENTS)
    assert first != Zigzag()
    assert repr(first) == "GivenLayout('a', 2 ranks)"


@pytest.mark.parametrize("layout", [Zigzag(), Interleave(2), VllmZigzag(), VllmReplicated()], ids=lambda layout: layout.name)
def test_requests_without_tokens_have_no_row_and_keep_their_place(layout: Layout) -> None:
    batches = build_batches(layout, 2, [0, 6, 0, 3, 0], [4, 1, 0, 0, 2])
    plain = build_batches(layout, 2, [6, 3], [1, 0])
    for batch, other in zip(batches, plain, strict=True):
        assert batch.num_requests == 5
        assert torch.equal(batch.positions, other.positions)
        assert torch.equal(batch.padded_rows, other.padded_rows)
        assert batch.request_of_row.tolist() == [1] * 6 + [3] * 3
    assert [batch.nnz for batch in build_batches(layout, 2, [0, 0])] == [0, 0]
    assert build_batch(layout, 2, 1, [0, 0]).gathered_rows.shape == (0,)


def test_a_batch_makes_no_index_tensor_before_one_is_read() -> None:
    batch = build_batch(Interleave(), 4, 1, [9, 7], out_cache_loc=torch.arange(16))
    assert made_tensors(batch) == ["out_cache_loc"]
    assert (batch.nnz_local, batch.nnz_padded, batch.max_seq_len, batch.device) == (4, 4, 9, torch.device("cpu"))
    assert batch.signature is build_batch(Interleave(), 4, 1, [9, 7]).signature
    assert made_tensors(batch) == ["out_cache_loc"]
    view = batch.at_layer(3)
    assert view.local_rows.tolist() == [1, 5, 9, 13]
    assert batch.local_rows is view.local_rows
    assert made_tensors(batch) == ["local_rows", "out_cache_loc"]


def test_a_batch_has_no_other_attributes_than_its_own() -> None:
    with pytest.raises(AttributeError, match="'CpBatch' object has no attribute 'rows_of_nobody'"):
        getattr(build_batch(Zigzag(), 2, 0, [4]), "rows_of_nobody")  # noqa: B009


def test_a_batch_is_copied_and_pickled_before_and_after_its_tensors_are_made() -> None:
    batch = build_batch(Zigzag(), 2, 1, [4], out_cache_loc=torch.arange(4))
    for _ in range(2):
        for other in (copy.deepcopy(batch), pickle.loads(pickle.dumps(batch))):
            assert other.local_rows.tolist() == [1, 2]
            assert other.required("rank_major_loc", "write_kv").tolist() == [0, 3, 1, 2]
        assert batch.local_rows.tolist() == [1, 2]


def test_ranks_in_threads_make_what_they_share_once() -> None:
    batches = build_batches(Interleave(), 8, [64], out_cache_loc=torch.arange(64))
    start, found = threading.Barrier(8), {}

    def read(rank: int) -> None:
        start.wait()
        found[rank] = (batches[rank].required("rank_major_loc", "write_kv"), batches[rank].positions)

    threads = [threading.Thread(target=read, args=(rank,)) for rank in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for at in range(2):
        assert len({found[rank][at].data_ptr() for rank in range(8)}) == 1


@pytest.mark.parametrize("block", [1, 2, 5])
def test_rows_that_interleave_counts_are_those_of_its_segments(block: int) -> None:
    for lens, padded in (([9, 7], [9, 7]), ([9, 0, 4], [10, 0, 8]), ([1], [1]), ([13, 1, 1], [16, 3, 1])):
        layout = Interleave(block)
        batches = build_batches(layout, 3, lens, padded_lens=padded)
        assert [len(batch.local_rows) for batch in batches] == list(batches[0].rank_lens)
        tables = layout.segment_tables(padded, 3)
        rows = layout.count_rows(lens, padded, 3)
        assert rows.padded == tuple(int((table.segments[:, 2] - table.segments[:, 1]).sum()) for table in tables)


def test_counts_that_the_segments_contradict_are_refused_when_tensors_are_made() -> None:
    class Miscounted(Interleave):
        def count_rows(self, *lens: Any) -> RankRows:
            return RankRows((3, 1), (3, 1))

    source = IndexSource(Miscounted(), 2, ((4,), (0,), (4,)), torch.device("cpu"), lambda fullest: fullest)
    with pytest.raises(BatchError) as error:
        source.tensor("local_rows", 0)
    assert error.value.headline == "interleave counts [3, 1] rows, its segments have [2, 2]"


def test_layouts_and_batches_need_none_of_the_command_lines_packages() -> None:
    program = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("typer", "rich", "pydantic", "jinja2", "z3", "click"):
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Blocked())
from dsa_contracts import CpBatch, GivenLayout
from dsa_cp.layouts import Zigzag, build_batch
print(build_batch(Zigzag(), 2, 0, [4]).local_rows.tolist())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("[0, 3]\n", 0), done.stderr
