"""Reference of `all_gather_kv`: pad in place where the batch says padding stands, then one collective over bytes."""

import dsa_contracts.stages as contracts
from dsa_contracts import Comm, CpBatch, brand, stage
from dsa_contracts.dsa.aliases import DenseKvRows, KvRows
from dsa_contracts.dsa.dims import NnzGathered
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.states import Global, Local, RankMajor
from dsa_contracts.dsa.typevars import ND, RD, F, L, N, P


@stage(contracts.all_gather_kv)
def all_gather_kv(
    kv: KvRows[Local[L], F, P, N],
    row_format: RowFormat[F, ND, RD],
    batch: CpBatch[L],
    comm: Comm,
) -> DenseKvRows[Global[RankMajor[L]], F, P, NnzGathered]:
    """See `dsa_contracts.stages.all_gather_kv`."""
    padded = kv.new_zeros(batch.nnz_padded, kv.shape[1])
    if kv.shape[0] == batch.nnz_local:
        padded[batch.padded_index] = kv
    else:
        padded[batch.padded_index] = kv[batch.padded_index]
    return brand(comm.all_gather(padded))
