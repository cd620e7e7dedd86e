"""The K tail, from packed rows to the cache of every rank, in the orders that engines have and in ours.

The order of sglang is that of `_all_gather_dsa_trtllm_fp8_kv` and `cp_all_gather_rerange_output` at 0.5.15, zigzag, one
request; that of vLLM is pcp.py at 0.33. Both are written by us from their description, with the write kernel of this
project, which is no slower than theirs.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dsa_cp.comm.distributed import all_gather_into
from dsa_cp.comm.symmetric import Part, SymmetricComm

RANK, ROPE, INDEX = 512, 64, 128
KV_BYTES, INDEX_BYTES = RANK + ROPE, INDEX + 4
WRITE_ROWS = 8
"""Rows a program of the quantising write."""


@dataclass
class TailInputs:
    """One layer's rows of one rank, in each form that an order starts from, and where they go.

    Attributes:
        latent: bf16 [n, 512].
        rope: bf16 [n, 64], rotated.
        key: bf16 [n, 128], the indexer's key.
        kv: packed bytes [n, 576]: latent and rope as e4m3.
        index: packed bytes [n, 132]: codes and scale of the indexer's key.
        both: packed bytes [n, 708]: a KV row and its indexer row side by side.
        loc: int64 [cp_size * n], slot of each row, rank-major.
        slots: int64 [cp_size * n], slot of each row in sequence order.
        pieces: rows of each zigzag piece of a rank, and where each piece of the gathered rows stands in the sequence.
    """

    latent: Tensor
    rope: Tensor
    key: Tensor
    kv: Tensor
    index: Tensor
    both: Tensor
    loc: Tensor
    slots: Tensor
    pieces: tuple[list[int], list[int]]

    @property
    def rows(self) -> int:
        """Rows of this rank."""
        return self.kv.shape[0]


@dataclass
class Pools:
    """The pools of one layer, as bytes [pages, 64, width], in symmetric memory and elsewhere."""

    kv: Tensor
    index: Tensor


Order = Callable[[SymmetricComm, TailInputs, Pools, bool], None]


def _write(pool: Tensor, rows: Tensor, loc: Tensor) -> None:
    from dsa_cp.triton_jit.write_kv import write_kv

    write_kv(pool.view(-1, pool.shape[-1]), rows, loc)


def _gather(rows: Tensor, comm: SymmetricComm) -> Tensor:
    gathered = rows.new_empty(comm.size * rows.shape[0], *rows.shape[1:])
    all_gather_into(gathered, rows, comm.process_group)
    return gathered


def _in_sequence(gathered: Tensor, given: TailInputs, cp_size: int) -> Tensor:
    """Drop padding, split into the pieces of the layout, and join them in sequence order."""
    per_rank = torch.split(gathered, gathered.shape[0] // cp_size)
    real = torch.cat([part[: given.rows] for part in per_rank])
    sizes, order = given.pieces
    parts = torch.split(real, sizes * cp_size)
    return torch.cat([parts[at] for at in order])


def sglang_order(comm: SymmetricComm, given: TailInputs, pools: Pools, with_index: bool) -> None:
    """Cat, all-gather, unpad, reorder, write; the indexer's key the same way, by itself."""
    kv = torch.cat([given.kv[:, :RANK], given.kv[:, RANK:]], dim=-1)
    _write(pools.kv, _in_sequence(_gather(kv, comm), given, comm.size), given.slots)
    if with_index:
        key = torch.cat([given.index[:, :INDEX], given.index[:, INDEX:]], dim=-1)
        _write(pools.index, _in_sequence(_gather(key, comm), given, comm.size), given.slots)


def vllm_order(comm: SymmetricComm, given: TailInputs, pools: Pools, with_index: bool) -> None:
    """Separate bf16 all-gathers, then a quantising write with rank-major slots."""
    from dsa_cp.triton_jit.vllm_write import quantize_write, quantize_write_index

    latent, rope = _gather(given.latent, comm), _gather(given.rope, comm)
    rows = latent.shape[0]
    grid = (-(-rows // WRITE_ROWS),)
    quantize_write[grid](latent, rope, given.loc, pools.kv.view(torch.float8_e4m3fn), rows, RANK, ROPE, WRITE_ROWS)
    if with_index:
        key = _gather(given.key, comm)
        codes, scales = pools.index.view(torch.float8_e4m3fn), pools.index.view(torch.float32)
        quantize_write_index[grid](key, given.loc, codes, scales, rows, INDEX, WRITE_ROWS)


def nccl_order(comm: SymmetricComm, given: TailInputs, pools: Pools, with_index: bool) -> None:
    """One all-gather of packed rows, then the write with rank-major slots."""
    gathered = _gather(given.both if with_index else given.kv, comm)
    _write(pools.kv, gathered[:, :KV_BYTES], given.loc)
    if with_index:
        _write(pools.index, gathered[:, KV_BYTES:], given.loc)


def _parts(given: TailInputs, pools: Pools, with_index: bool) -> list[Part]:
    parts = [Part(pools.kv, given.kv)]
    return [*parts, Part(pools.index, given.index)] if with_index else parts


def push_order(comm: SymmetricComm, given: TailInputs, pools: Pools, with_index: bool) -> None:
    """One kernel that writes this rank's rows into every rank's pool."""
    comm.push(_parts(given, pools, with_index), given.loc, comm.rank * given.rows, given.rows)


def pull_order(comm: SymmetricComm, given: TailInputs, pools: Pools, with_index: bool) -> None:
    """One kernel that reads every rank's rows, which `staged` has put into the symmetric buffer."""
    widths = (KV_BYTES, INDEX_BYTES) if with_index else (KV_BYTES,)
    staged = comm.staged_rows(given.rows, *widths)
    targets = (pools.kv, pools.index)
    comm.pull([Part(pool, rows) for pool, rows in zip(targets, staged, strict=False)], given.loc, given.rows)


ORDERS: dict[str, Order] = {
    "sglang": sglang_order,
    "vllm": vllm_order,
    "nccl": nccl_order,
    "pull": pull_order,
    "push": push_order,
}
