"""Columns of packed rows, handed to a stage that wants dense rows."""

from dsa_contracts import CpBatch, Ten, contract
from dsa_contracts.dims import KvLoraRank, NnzLocal, RowBytes
from dsa_contracts.formats import fp8_format
from dsa_contracts.states import E4M3, U8, Contiguous, Fp8Row, Local, Packed, PackedRowStride, Plain, Rotated
from dsa_contracts.typevars import L, N
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import split_kv


@contract()
def store_latent(k_nope: Ten[Local[L], Plain, E4M3, Contiguous, N, KvLoraRank], batch: CpBatch[L]) -> None:
    """Latent codes are stored by a kernel that knows no row stride."""


def layer(
    kv: Ten[Local[Zigzag], Packed[Fp8Row, Rotated], U8, Contiguous, NnzLocal, RowBytes], batch: CpBatch[Zigzag]
) -> None:
    k_nope, _ = split_kv(kv, fp8_format(), PackedRowStride, batch)
    store_latent(k_nope, batch)  # refused
