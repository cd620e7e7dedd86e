"""Contract of `merge_q`."""

from dsa_contracts.core.contract import contract
from dsa_contracts.core.marks import BF16, Contiguous, Plain, UnitLast
from dsa_contracts.core.tensors import Ten
from dsa_contracts.dsa.batch import CpBatch
from dsa_contracts.dsa.dims import KvLoraRank, NumLocalHeads, QkHeadDim, QkRopeHeadDim
from dsa_contracts.dsa.invariants import widths_add_up
from dsa_contracts.dsa.states import Local, Rotated
from dsa_contracts.dsa.typevars import L, N


@contract(
    returns=("q",),
    ensures=(widths_add_up("q", "q_nope", "q_rope"),),
    advice=(("DSA107", "apply RoPE to q_rope before merging; attend takes rotated queries"),),
    flow=(("q_nope", "q"), ("q_rope", "q")),
)
def merge_q(
    q_nope: Ten[Local[L], Plain, BF16, UnitLast, N, NumLocalHeads, KvLoraRank],
    q_rope: Ten[Local[L], Rotated, BF16, UnitLast, N, NumLocalHeads, QkRopeHeadDim],
    batch: CpBatch[L],
) -> Ten[Local[L], Rotated, BF16, Contiguous, N, NumLocalHeads, QkHeadDim]:
    """Queries stand as `attend` takes them: latent, then rotated rope part.

    Args:
        q_nope: absorbed latent queries.
        q_rope: rotated rope part.
        batch: the batch.

    Returns:
        Merged queries.

    Row order: that of the inputs. Aliasing: new memory. Sync: none.

    Raises:
        StageInputError: DSA101 to DSA109, DSA125.
        StageOutputError: DSA124.

    Source: FlashMLA 1.0.0 `flash_mla_sparse_fwd`, q [s_q, heads, 576].
    """
