"""Reference of `restore_order`: one gather by the batch's restore index."""

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, brand, stage
from dsa_contracts.dsa.aliases import PackedRows
from dsa_contracts.dsa.dims import Nnz, NnzGathered
from dsa_contracts.dsa.states import Global, RankMajor, Sequence
from dsa_contracts.dsa.typevars import L, S


@stage(contracts.restore_order)
def restore_order(
    gathered: PackedRows[Global[RankMajor[L]], S, NnzGathered],
    batch: CpBatch[L],
) -> PackedRows[Global[Sequence], S, Nnz]:
    """See `dsa_contracts.stages.restore_order`."""
    return brand(gathered[batch.restore_index])
