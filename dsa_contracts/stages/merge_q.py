"""Contract of `merge_q`."""

from dsa_contracts.core.contract import contract
from dsa_contracts.core.marks import BF16
from dsa_contracts.dsa.aliases import QNope, QRope, Query
from dsa_contracts.dsa.batch import CpBatch
from dsa_contracts.dsa.invariants import widths_add_up
from dsa_contracts.dsa.states import Rotated
from dsa_contracts.dsa.typevars import L, N


@contract(
    returns=("q",),
    ensures=(widths_add_up("q", "q_nope", "q_rope"),),
    advice=(("DSA107", "apply RoPE to q_rope before merging; attend takes rotated queries"),),
    flow=(("q_nope", "q"), ("q_rope", "q")),
)
def merge_q(
    q_nope: QNope[L, N],
    q_rope: QRope[L, Rotated, N],
    batch: CpBatch[L],
) -> Query[L, BF16, N]:
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
