"""Rows cut by one layout, gathered as rows of another."""

from dsa_contracts import Comm, CpBatch
from dsa_contracts.dsa.aliases import DenseKvRows
from dsa_contracts.dsa.dims import NnzLocal
from dsa_contracts.dsa.row_formats import fp8_format
from dsa_contracts.dsa.states import Fp8Row, Local, Rotated
from dsa_cp.layouts import Interleave, Zigzag
from dsa_cp.stages import all_gather_kv


def layer(
    kv: DenseKvRows[Local[Zigzag], Fp8Row, Rotated, NnzLocal],
    batch: CpBatch[Interleave],
    comm: Comm,
) -> None:
    all_gather_kv(kv, fp8_format(), batch, comm)  # refused
