"""Contract of `pack_kv`."""

from dsa_contracts.core.contract import contract
from dsa_contracts.core.marks import BF16, U8, Contiguous, Plain, UnitLast
from dsa_contracts.core.tensors import Ten
from dsa_contracts.dsa.batch import CpBatch
from dsa_contracts.dsa.dims import KvLoraRank, QkRopeHeadDim, RowBytes
from dsa_contracts.dsa.invariants import row_width_matches_format, widths_match_format
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.states import Bf16Row, Packed
from dsa_contracts.dsa.typevars import L, M, P, R


@contract(
    returns=("kv",),
    requires=(widths_match_format(("k_nope", "k_nope"), ("k_rope", "k_rope")),),
    ensures=(row_width_matches_format("kv"),),
    flow=(("k_nope", "kv"), ("k_rope", "kv")),
)
def pack_kv(
    k_nope: Ten[R, Plain, BF16, UnitLast, M, KvLoraRank],
    k_rope: Ten[R, P, BF16, UnitLast, M, QkRopeHeadDim],
    row_format: RowFormat[Bf16Row, BF16, BF16],
    batch: CpBatch[L],
) -> Ten[R, Packed[Bf16Row, P], U8, Contiguous, M, RowBytes]:
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
