"""Ranks as threads that share one GPU: push and pull with more ranks than this machine has GPUs.

`python -m tests.support.ranks_on_one_gpu RANKS` prints a line a case and exits with 1 where a byte differs. Each rank has a
stream of its own; the kernels of all ranks must be on the GPU at once, so that sizes are small; nothing is allocated between
launches.
"""

import sys
import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dsa_contracts import Comm, CpBatch
from dsa_cp.comm import run_ranks
from dsa_cp.comm.symmetric import SymmetricComm
from dsa_cp.kernels.symmetric_kernels import gather_write_kv, gather_write_kv_and_index
from tests.support.symmetric_programs import INDEX, KV, POISON, batch_of, branded_pool, branded_rows, random_rows

CASES: list[tuple[str, list[int]]] = [
    ("zigzag", [513, 1, 130]),
    ("interleave", [127]),
    ("interleave", [3]),
    ("vllm_zigzag", [1, 600]),
]
ROUNDS = 3


class OneGpuComm(SymmetricComm):
    """A group whose shared memory is plain memory of the one GPU: ranks tell each other where theirs is."""

    def __init__(self, inner: Any, board: "Board", staged_bytes: int) -> None:
        self._board = board
        super().__init__(inner, torch.device("cuda", 0), staged_bytes=staged_bytes)

    def _share(self, size: int) -> tuple[Tensor, list[int]]:
        memory = torch.zeros(size, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        return memory, self._board.exchange(self.rank, memory.data_ptr())

    def _launch(self, kernel: Any, units: int, args: list[object], constants: tuple[int, ...]) -> None:
        with self._board.lock:  # what one rank has compiled and loaded, the next one finds: nothing is loaded beside a kernel
            super()._launch(kernel, units, args, constants)


class Board:
    """Where the threads meet."""

    def __init__(self, ranks: int) -> None:
        self.lock = threading.Lock()
        self.pointers = [0] * ranks
        self.barrier = threading.Barrier(ranks, timeout=60.0)

    def exchange(self, rank: int, pointer: int) -> list[int]:
        self.pointers[rank] = pointer
        self.barrier.wait()
        found = list(self.pointers)
        self.barrier.wait()
        return found


def expected(pool: Tensor, batch: CpBatch[Any], rows_of: Sequence[Tensor]) -> Tensor:
    """The pool after every rank's rows were written one after the other."""
    want, loc = pool.clone(), batch.rank_major_loc
    assert loc is not None
    flat = want.view(-1, want.shape[-1])
    for rank, rows in enumerate(rows_of):
        slots = loc[rank * batch.nnz_padded :][: len(rows)]
        flat[slots[slots >= 0]] = rows[slots >= 0]
    return want


def differing(comm: Comm, board: Board, case: tuple[str, list[int]], pushes: bool) -> int:
    """Bytes that differ from the expected ones, over all rounds, on one rank."""
    layout, extend = case
    with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
        shared = OneGpuComm(comm, board, staged_bytes=0 if pushes else 1 << 20)
        batch = batch_of(comm, layout, extend, None)
        loc: Any = batch.required("rank_major_loc", "test")
        pages, wrong = batch.nnz // 64 + 3, 0
        for number in range(ROUNDS):
            raw = [shared.new_pools(1, (pages, 64, form.row_bytes))[0] for form in (KV, INDEX)]
            if not pushes:
                raw = [torch.empty_like(one) for one in raw]
            pool, index_pool = branded_pool(raw[0].fill_(POISON), KV), branded_pool(raw[1].fill_(POISON), INDEX)
            seeds = [(count, 100 * number + 10 * rank) for rank, count in enumerate(batch.rank_lens)]
            drawn = [[random_rows(count, width, seed + width % 7) for count, seed in seeds] for width in (576, 132)]
            wants = [expected(one, batch, rows) for one, rows in zip(raw, drawn, strict=True)]
            kv = branded_rows(drawn[0][comm.rank].clone(), KV, batch)
            index_kv = branded_rows(drawn[1][comm.rank].clone(), INDEX, batch)
            torch.cuda.synchronize()
            board.barrier.wait()
            if number % 2:
                gather_write_kv(pool, kv, loc, KV, batch, shared)
                wants[1] = torch.full_like(raw[1], POISON)
            else:
                gather_write_kv_and_index(pool, index_pool, kv, index_kv, loc, KV, INDEX, batch, shared)
            torch.cuda.current_stream().synchronize()
            board.barrier.wait()
            wrong += sum(int((got != want).sum()) for got, want in zip(raw, wants, strict=True))
    return wrong


def main() -> int:
    """Run all cases with the number of ranks that is given; pull is for powers of two."""
    ranks, wrong = int(sys.argv[1]), 0
    for pushes in (True, False) if ranks & (ranks - 1) == 0 else (True,):
        for case in CASES:
            board = Board(ranks)
            found = run_ranks(ranks, lambda comm, made=(board, case, pushes): differing(comm, *made), timeout_s=60.0)  # type: ignore[misc]
            sys.stdout.write(f"{ranks} ranks, {'push' if pushes else 'pull'}, {case}: {found} bytes differ\n")
            wrong += sum(found)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
