"""Contract of `pack_index_key`."""

from dsa_contracts.core.contract import contract
from dsa_contracts.dsa.aliases import DenseKvRows, IndexKey
from dsa_contracts.dsa.batch import CpBatch
from dsa_contracts.dsa.invariants import row_width_matches_format, scales_in_rows_are_positive, widths_match_format
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.states import Rotated
from dsa_contracts.dsa.typevars import ND, RD, F, L, M, R


@contract(
    returns=("index_kv",),
    requires=(widths_match_format(("k_index", "k_index")),),
    ensures=(row_width_matches_format("index_kv"), scales_in_rows_are_positive("index_kv")),
    flow=(("k_index", "index_kv"),),
)
def pack_index_key(
    k_index: IndexKey[R, Rotated, M],
    row_format: RowFormat[F, ND, RD],
    batch: CpBatch[L],
) -> DenseKvRows[R, F, Rotated, M]:
    """The indexer's key stands in packed rows: bf16 as it is, or e4m3 with one float32 scale.

    Args:
        k_index: normed and rotated indexer key, one head.
        row_format: `index_bf16` or `index_fp8`.
        batch: the batch.

    Returns:
        Packed rows for the same collective and the same write as KV rows, into a pool of their own.

    Row order: that of `k_index`. Aliasing: new memory. Sync: none.

    Raises:
        StageInputError: DSA101 to DSA109, DSA124, DSA125.
        StageOutputError: DSA110, DSA112.

    Source: DeepSeek-V3.2's indexer; sglang 0.5.23 `layers/attention/dsa/dsa_indexer.py` stores 128 e4m3 + one float32.
    """
