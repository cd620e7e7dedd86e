"""`gather_write_kv` does what the gather and the write do, on every rank, with and without the indexer's rows."""

from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import Comm, ContractError, CpBatch, Layout, checking_values, declare, declare_lasting
from dsa_contracts.formats import RowFormat, fp8_format, index_fp8_format
from dsa_contracts.states import Fp8Row, Local, Packed, Pool, Raw, Rotated
from dsa_cp.comm import run_ranks
from dsa_cp.layouts import Interleave, VllmZigzag, Zigzag, build_batch
from dsa_cp.stages import all_gather_kv, gather_write_kv, gather_write_kv_and_index, write_kv

KV, INDEX = fp8_format(16, 8), index_fp8_format(8)
EXTEND, PAGE = [13, 1, 6], 4
POISON = 0xEE
LOCAL: Any = Local
PACKED: Any = Packed
"""Marks whose parameters are values here."""


def batch_of(layout: Layout, comm: Comm, padded: list[int] | None) -> CpBatch[Any]:
    slots = torch.randperm(32, generator=torch.Generator().manual_seed(1))[: sum(EXTEND)]
    return build_batch(
        layout, comm.cp_size, comm.cp_rank, EXTEND, padded_lens=padded, out_cache_loc=slots, page_size=PAGE, row_alignment=2
    )


def rows_of(count: int, row_format: RowFormat[Any, Any, Any], batch: CpBatch[Any], seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(0, 256, (count, row_format.row_bytes), dtype=torch.uint8, generator=generator)
    if row_format is INDEX:
        rows[:, INDEX.part("scales").columns] = torch.ones(count, 1).view(torch.uint8)
    return declare(rows, LOCAL[type(batch.layout)], PACKED[row_format.mark, Rotated], batch, "test")


def pool_of(row_format: RowFormat[Any, Any, Any]) -> Any:
    pool = torch.full((8, PAGE, row_format.row_bytes), POISON, dtype=torch.uint8)
    return declare_lasting(pool, Pool, PACKED[row_format.mark, Rotated], "test")


@pytest.mark.parametrize("with_padding", [False, True])
@pytest.mark.parametrize("padded", [None, [16, 4, 8]])
@pytest.mark.parametrize("layout", [Zigzag(), Interleave(), VllmZigzag()])
def test_pools_are_those_of_the_gather_and_the_write(layout: Layout, padded: list[int] | None, with_padding: bool) -> None:
    def body(comm: Comm) -> tuple[Tensor, ...]:
        batch = batch_of(layout, comm, padded)
        count = batch.nnz_padded if with_padding else batch.nnz_local
        kv, index = rows_of(count, KV, batch, comm.cp_rank), rows_of(count, INDEX, batch, 9 + comm.cp_rank)
        loc: Any = batch.required("rank_major_loc", "test")
        alone, both, both_index, want, want_index = (pool_of(each) for each in (KV, KV, INDEX, KV, INDEX))
        with checking_values():
            gather_write_kv(alone, kv, loc, KV, batch, comm)
            gather_write_kv_and_index(both, both_index, kv, index, loc, KV, INDEX, batch, comm)
            write_kv(want, all_gather_kv(kv, KV, batch, comm), loc, KV, batch)
            write_kv(want_index, all_gather_kv(index, INDEX, batch, comm), loc, INDEX, batch)
        return alone, both, want, both_index, want_index

    pools = run_ranks(4, body)
    for alone, both, want, both_index, want_index in pools:
        assert torch.equal(alone, want)
        assert torch.equal(both, want)
        assert torch.equal(both_index, want_index)
        assert torch.equal(alone, pools[0][0])
    assert int((pools[0][0].view(-1, KV.row_bytes) == POISON).all(dim=1).sum()) == 32 - sum(EXTEND)


@pytest.mark.parametrize(
    ("fault", "code"), [("raw", "DSA107"), ("narrow", "DSA102"), ("gathered", "DSA106"), ("narrow index", "DSA102")]
)
def test_gathered_rows_raw_keys_and_rows_of_another_width_are_refused(fault: str, code: str) -> None:
    def body(comm: Comm) -> None:
        batch = batch_of(Zigzag(), comm, None)
        kv, index = rows_of(batch.nnz_local, KV, batch, 1), rows_of(batch.nnz_local, INDEX, batch, 2)
        loc: Any = batch.required("rank_major_loc", "test")
        if fault == "raw":
            kv = declare(kv.clone(), LOCAL[Zigzag], PACKED[Fp8Row, Raw], batch, "test")
        elif fault == "gathered":
            kv = all_gather_kv(kv, KV, batch, comm)
        elif fault == "narrow":
            kv = kv[:, :20].contiguous()
        else:
            index = index[:, :8].contiguous()
        gather_write_kv_and_index(pool_of(KV), pool_of(INDEX), kv, index, loc, KV, INDEX, batch, comm)

    with pytest.raises(ContractError) as caught:
        run_ranks(1, body)
    assert getattr(caught.value.__cause__, "code", "") == code
