"""Bodies that run as ranks on GPUs; child processes import this module."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import dsa_cp.stages as references
from dsa_contracts import Comm, CpBatch, checking_values, declare, declare_lasting
from dsa_contracts.dsa.row_formats import RowFormat, fp8_format, index_fp8_format
from dsa_contracts.dsa.states import Local, Packed, Pool, Rotated
from dsa_cp.comm.distributed import DistributedComm
from dsa_cp.comm.symmetric import SymmetricComm
from dsa_cp.kernels.symmetric_kernels import gather_write_kv, gather_write_kv_and_index
from dsa_cp.layouts import build_batch, layout_by_name

POISON = 0xA5
LOCAL: Any = Local
PACKED: Any = Packed
"""Marks whose parameters are values here."""
KV, INDEX = fp8_format(), index_fp8_format()


def symmetric(comm: Comm, staged_bytes: int = 0) -> SymmetricComm:
    assert isinstance(comm, DistributedComm)
    return SymmetricComm(comm, torch.device("cuda", torch.cuda.current_device()), staged_bytes=staged_bytes)


def random_rows(count: int, width: int, seed: int) -> Tensor:
    device = torch.device("cuda", torch.cuda.current_device())
    generator = torch.Generator(device).manual_seed(seed)
    return torch.randint(0, 256, (count, width), dtype=torch.uint8, device=device, generator=generator)


def batch_of(comm: Comm, layout: str, extend: Sequence[int], padded: Sequence[int] | None) -> CpBatch[Any]:
    """A batch whose slots lie in shuffled pages."""
    total = sum(extend)
    order = torch.randperm(-(-total // 64) + 1, generator=torch.Generator().manual_seed(total))
    token = torch.arange(total)
    slots = (order[token // 64] * 64 + token % 64).cuda()
    return build_batch(
        layout_by_name(layout), comm.size, comm.rank, extend, padded_lens=padded, out_cache_loc=slots, row_alignment=2
    )


def branded_rows(rows: Tensor, row_format: RowFormat[Any, Any, Any], batch: CpBatch[Any]) -> Any:
    return declare(rows, LOCAL[type(batch.layout)], PACKED[row_format.mark, Rotated], batch, "test")


def branded_pool(pool: Tensor, row_format: RowFormat[Any, Any, Any]) -> Any:
    return declare_lasting(pool, Pool, PACKED[row_format.mark, Rotated], "test pool")


def pools_of(comm: SymmetricComm, batch: CpBatch[Any], *, pushes: bool) -> list[Any]:
    """A KV pool and an index pool, poisoned on every rank before this returns on any."""
    pages = batch.nnz // 64 + 3
    pools = []
    for row_format in (KV, INDEX):
        shape = (pages, 64, row_format.row_bytes)
        pool = comm.new_pools(1, shape)[0] if pushes else torch.empty(shape, dtype=torch.uint8, device="cuda")
        pools.append(branded_pool(pool.fill_(POISON), row_format))
    comm.meet()
    return pools


Case = tuple[str, list[int], list[int] | None, bool]


def differing_bytes_of_cases(comm: Comm, cases: list[Case], pushes: bool, rounds: int) -> dict[str, list[int]]:
    """Return how many bytes differ from the reference's, by case and round."""
    shared = symmetric(comm, staged_bytes=1 << 23)
    return {str(case): differing_bytes(comm, shared, case, pushes, rounds) for case in cases}


def differing_bytes(comm: Comm, shared: SymmetricComm, case: Case, pushes: bool, rounds: int) -> list[int]:
    """Return how many bytes differ, by round; each round has fresh rows and ranks out of step."""
    layout, extend, padded, with_padding = case
    batch = batch_of(comm, layout, extend, padded)
    loc: Any = batch.required("rank_major_loc", "test")
    count = batch.nnz_padded if with_padding else batch.nnz_local
    found = []
    for number in range(rounds):
        kv, index = pools_of(shared, batch, pushes=pushes)
        want_kv, want_index = branded_pool(kv.clone(), KV), branded_pool(index.clone(), INDEX)
        rows = branded_rows(random_rows(count, 576, number * 10 + comm.rank), KV, batch)
        keys = branded_rows(random_rows(count, 132, number * 10 + 5 + comm.rank), INDEX, batch)
        torch.cuda._sleep((comm.rank + number) % 2 * 1_000_000)  # type: ignore[no-untyped-call]
        if number % 2:
            gather_write_kv(kv, rows, loc, KV, batch, shared)
            references.gather_write_kv(want_kv, rows, loc, KV, batch, comm)
        else:
            gather_write_kv_and_index(kv, index, rows, keys, loc, KV, INDEX, batch, shared)
            references.gather_write_kv_and_index(want_kv, want_index, rows, keys, loc, KV, INDEX, batch, comm)
        shared.meet()
        found.append(int((kv != want_kv).sum()) + int((index != want_index).sum()))
    return found


def replayed_differences(comm: Comm, layers: int, pushes: bool) -> list[int]:
    """Capture an odd number of layers over one pool each, replay with fresh rows, and count differing bytes by replay."""
    shared = symmetric(comm, staged_bytes=1 << 23)
    batch = batch_of(comm, "zigzag", [1000], None)
    loc: Any = batch.required("rank_major_loc", "test")
    pools = [pools_of(shared, batch, pushes=pushes)[0] for _ in range(layers)]
    rows = [branded_rows(random_rows(batch.nnz_local, 576, 1), KV, batch) for _ in range(layers)]
    gather_write_kv(pools[0], rows[0], loc, KV, batch, shared)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for pool, mine in zip(pools, rows, strict=True):
            gather_write_kv(pool, mine, loc, KV, batch, shared)
        shared.meet()
    found = []
    for replay in range(6):
        for at, mine in enumerate(rows):
            mine.copy_(random_rows(batch.nnz_local, 576, 100 * replay + 10 * at + comm.rank))
        torch.cuda._sleep((comm.rank + replay) % 2 * 1_000_000)  # type: ignore[no-untyped-call]
        graph.replay()
        count = 0
        for pool, mine in zip(pools, rows, strict=True):
            want = branded_pool(torch.full_like(pool, POISON), KV)
            references.gather_write_kv(want, mine, loc, KV, batch, comm)
            count += int((pool != want).sum())
        found.append(count)
    return found


def gathered_over_nccl(comm: Comm, sizes: list[int]) -> tuple[str, list[bool]]:
    """Return where gathered rows are, and whether they are those of all ranks in order, by number of rows."""
    found = []
    for rows in sizes:
        gathered = comm.all_gather(random_rows(rows, 576, comm.rank))
        want = torch.cat([random_rows(rows, 576, rank) for rank in range(comm.size)])
        found.append(bool(torch.equal(gathered, want)))
    return str(gathered.device), found


def values_mode(comm: Comm) -> int:
    """Run the fused stage with values checked; the order of the ranks is one of them."""
    shared = symmetric(comm)
    batch = batch_of(comm, "interleave", [300, 5], None)
    loc: Any = batch.required("rank_major_loc", "test")
    kv, _ = pools_of(shared, batch, pushes=True)
    with checking_values():
        gather_write_kv(kv, branded_rows(random_rows(batch.nnz_local, 576, 1), KV, batch), loc, KV, batch, shared)
    return int((kv.view(-1, 576)[loc[loc >= 0]] == POISON).all(dim=1).sum())
