"""Columns of packed rows, handed to a stage that wants dense rows."""

from dsa_contracts import CpBatch, Ten, contract
from dsa_contracts.core.marks import E4M3, Contiguous, Plain
from dsa_contracts.dsa.aliases import DenseKvRows
from dsa_contracts.dsa.dims import KvLoraRank, NnzLocal
from dsa_contracts.dsa.row_formats import fp8_format
from dsa_contracts.dsa.states import Fp8Row, Local, PackedRowStride, Rotated
from dsa_contracts.dsa.typevars import L, N
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import split_kv


@contract()
def store_latent(k_nope: Ten[Local[L], Plain, E4M3, Contiguous, N, KvLoraRank], batch: CpBatch[L]) -> None:
    """Latent codes are stored by a kernel that knows no row stride."""


def layer(kv: DenseKvRows[Local[Zigzag], Fp8Row, Rotated, NnzLocal], batch: CpBatch[Zigzag]) -> None:
    k_nope, _ = split_kv(kv, fp8_format(), PackedRowStride, batch)
    store_latent(k_nope, batch)  # refused
