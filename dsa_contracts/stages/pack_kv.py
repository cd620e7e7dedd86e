"""Contract of `pack_kv`."""

from dsa_contracts.core.contract import contract
from dsa_contracts.core.marks import BF16
from dsa_contracts.dsa.aliases import DenseKvRows, KNope, KRope
from dsa_contracts.dsa.batch import CpBatch
from dsa_contracts.dsa.invariants import row_width_matches_format, widths_match_format
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.states import Bf16Row
from dsa_contracts.dsa.typevars import L, M, P, R


@contract(
    returns=("kv",),
    requires=(widths_match_format(("k_nope", "k_nope"), ("k_rope", "k_rope")),),
    ensures=(row_width_matches_format("kv"),),
    flow=(("k_nope", "kv"), ("k_rope", "kv")),
)
def pack_kv(
    k_nope: KNope[R, M],
    k_rope: KRope[R, P, M],
    row_format: RowFormat[Bf16Row, BF16, BF16],
    batch: CpBatch[L],
) -> DenseKvRows[R, Bf16Row, P, M]:
    """bf16 latent and rope part stand in packed rows, bytes unchanged, RoPE state kept.

    Args:
        k_nope: KV latent.
        k_rope: rope part of the key, raw or rotated.
        row_format: `bf16`.
        batch: the batch.

    Returns:
        Packed rows: latent, then rope.

    Row order: that of the inputs. Aliasing: new memory. Sync: none.

    Raises:
        StageInputError: DSA101 to DSA109, DSA124, DSA125.
        StageOutputError: DSA110.

    Source: sglang 0.5.23 `materialize_full_mla_kv`, which concatenates before the collective.
    """
