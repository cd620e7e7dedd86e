"""656-byte rows under the name of flat fp8: the widths differ, and so do the parts."""

from dsa_contracts import Comm, CpBatch
from dsa_contracts.dsa.aliases import DenseKvRows
from dsa_contracts.dsa.dims import NnzLocal
from dsa_contracts.dsa.row_formats import fp8_format
from dsa_contracts.dsa.states import Fp8Row656, Local, Rotated
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import all_gather_kv


def layer(
    kv: DenseKvRows[Local[Zigzag], Fp8Row656, Rotated, NnzLocal],
    batch: CpBatch[Zigzag],
    comm: Comm,
) -> None:
    all_gather_kv(kv, fp8_format(), batch, comm)  # refused
