"""Reference of `all_gather_kv`: pad in place where the batch says padding stands, then one collective over bytes."""

import dsa_contracts.stages as contracts
from dsa_contracts import Comm, CpBatch, Ten, brand, stage
from dsa_contracts.core.marks import U8, Contiguous, UnitLast
from dsa_contracts.dsa.dims import NnzGathered, RowBytes
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.states import Global, Local, Packed, RankMajor
from dsa_contracts.dsa.typevars import ND, RD, F, L, N, P


@stage(contracts.all_gather_kv)
def all_gather_kv(
    kv: Ten[Local[L], Packed[F, P], U8, UnitLast, N, RowBytes],
    row_format: RowFormat[F, ND, RD],
    batch: CpBatch[L],
    comm: Comm,
) -> Ten[Global[RankMajor[L]], Packed[F, P], U8, Contiguous, NnzGathered, RowBytes]:
    """See `dsa_contracts.stages.all_gather_kv`."""
    padded = kv.new_zeros(batch.nnz_padded, kv.shape[1])
    if kv.shape[0] == batch.nnz_local:
        padded[batch.padded_index] = kv
    else:
        padded[batch.padded_index] = kv[batch.padded_index]
    return brand(comm.all_gather(padded))
