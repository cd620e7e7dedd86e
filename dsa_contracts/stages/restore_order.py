"""Contract of `restore_order`."""

from dsa_contracts.core.contract import contract
from dsa_contracts.dsa.aliases import PackedRows
from dsa_contracts.dsa.batch import CpBatch
from dsa_contracts.dsa.dims import Nnz, NnzGathered
from dsa_contracts.dsa.invariants import rows_are_restored
from dsa_contracts.dsa.states import Global, RankMajor, Sequence
from dsa_contracts.dsa.typevars import L, S


@contract(
    returns=("restored",),
    ensures=(rows_are_restored(),),
    advice=(("DSA106", "restore_order takes what all_gather_kv of the same batch returned"),),
    flow=(("gathered", "restored"),),
)
def restore_order(
    gathered: PackedRows[Global[RankMajor[L]], S, NnzGathered],
    batch: CpBatch[L],
) -> PackedRows[Global[Sequence], S, Nnz]:
    """Rows of the batch in sequence order; padding and further copies of replicated rows are gone.

    Args:
        gathered: rows in rank-major order.
        batch: the batch.

    Returns:
        `nnz` rows: row i is token i of the flattened batch.

    Row order: sequence. Aliasing: new memory, one pass over KV. A path whose write takes slots in rank-major order
    (`batch.rank_major_loc`) needs no such pass. Sync: none.

    Raises:
        StageInputError: DSA101 to DSA106, DSA108, DSA109, DSA125.
        StageOutputError: DSA119.

    Source: sglang 0.5.15 `cp_all_gather_rerange_output` (layers/cp_utils.py); vLLM 0.33 `pcp_manager.py` restore index.
    """
