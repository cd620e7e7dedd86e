"""Contract of `quantize_rows`."""

from dsa_contracts.core.contract import contract
from dsa_contracts.core.marks import BF16, E4M3
from dsa_contracts.dsa.aliases import DenseKvRows, KNope, KRope
from dsa_contracts.dsa.batch import CpBatch
from dsa_contracts.dsa.invariants import row_width_matches_format, scales_in_rows_are_positive, widths_match_format
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.states import Fp8Row656, Rotated
from dsa_contracts.dsa.typevars import L, M, R


@contract(
    returns=("kv",),
    requires=(widths_match_format(("k_nope", "k_nope"), ("k_rope", "k_rope")),),
    ensures=(row_width_matches_format("kv"), scales_in_rows_are_positive("kv")),
    advice=(("DSA107", "apply RoPE before quantize_rows: the rope part of fp8_656 is stored rotated"),),
    flow=(("k_nope", "kv"), ("k_rope", "kv")),
)
def quantize_rows(
    k_nope: KNope[R, M],
    k_rope: KRope[R, Rotated, M],
    row_format: RowFormat[Fp8Row656, E4M3, BF16],
    batch: CpBatch[L],
) -> DenseKvRows[R, Fp8Row656, Rotated, M]:
    """bf16 rows become `fp8_656` rows: e4m3 latent with a float32 scale for each 128 elements, bf16 rope part.

    Args:
        k_nope: KV latent.
        k_rope: rotated rope part; its bytes are kept.
        row_format: `fp8_656`.
        batch: the batch.

    Returns:
        Packed rows. The scale of a group is its largest magnitude / 448 (the smallest normal where all are 0), and
        latent = code * scale.

    Row order: that of the inputs. Aliasing: new memory. Sync: none.

    Raises:
        StageInputError: DSA101 to DSA109, DSA124, DSA125.
        StageOutputError: DSA110, DSA112.

    Source: DeepSeek-V3.2's cache layout, FlashMLA 1.0.0 (README, "FP8 KV cache"); sglang 0.5.23 `quantize_k_cache`.
    """
