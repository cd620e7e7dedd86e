"""Rows cut by one layout, gathered as rows of another."""

from dsa_contracts import Comm, CpBatch, Ten
from dsa_contracts.core.marks import U8, Contiguous
from dsa_contracts.dsa.dims import NnzLocal, RowBytes
from dsa_contracts.dsa.row_formats import fp8_format
from dsa_contracts.dsa.states import Fp8Row, Local, Packed, Rotated
from dsa_cp.layouts import Interleave, Zigzag
from dsa_cp.stages import all_gather_kv


def layer(
    kv: Ten[Local[Zigzag], Packed[Fp8Row, Rotated], U8, Contiguous, NnzLocal, RowBytes],
    batch: CpBatch[Interleave],
    comm: Comm,
) -> None:
    all_gather_kv(kv, fp8_format(), batch, comm)  # refused
