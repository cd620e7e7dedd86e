"""Reference of `restore_order`: one gather by the batch's restore index."""

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, Ten, brand, stage
from dsa_contracts.core.marks import U8, Contiguous
from dsa_contracts.dsa.dims import Nnz, NnzGathered, RowBytes
from dsa_contracts.dsa.states import Global, RankMajor, Sequence
from dsa_contracts.dsa.typevars import L, S


@stage(contracts.restore_order)
def restore_order(
    gathered: Ten[Global[RankMajor[L]], S, U8, Contiguous, NnzGathered, RowBytes],
    batch: CpBatch[L],
) -> Ten[Global[Sequence], S, U8, Contiguous, Nnz, RowBytes]:
    """See `dsa_contracts.stages.restore_order`."""
    return brand(gathered[batch.restore_index])
