"""Rows that were gathered once hold all ranks' rows already."""

from dsa_contracts import Comm, CpBatch
from dsa_contracts.dsa.aliases import DenseKvRows
from dsa_contracts.dsa.dims import NnzLocal
from dsa_contracts.dsa.row_formats import fp8_format
from dsa_contracts.dsa.states import Fp8Row, Local, Rotated
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import all_gather_kv


def layer(
    kv: DenseKvRows[Local[Zigzag], Fp8Row, Rotated, NnzLocal],
    batch: CpBatch[Zigzag],
    comm: Comm,
) -> None:
    gathered = all_gather_kv(kv, fp8_format(), batch, comm)
    all_gather_kv(gathered, fp8_format(), batch, comm)  # refused
