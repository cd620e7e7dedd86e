"""Contract of `rope_quantize`."""

from dsa_contracts.core.contract import contract
from dsa_contracts.core.marks import E4M3
from dsa_contracts.dsa.aliases import CosSinCache, DenseKvRows, KNope, KRope, QNope, QRope, Query, TokenPositions
from dsa_contracts.dsa.batch import CpBatch
from dsa_contracts.dsa.invariants import (
    positions_go_with,
    scale_is_positive,
    table_covers_positions,
    table_is_cosines_then_sines,
    table_width_is_rope_dim,
    widths_add_up,
)
from dsa_contracts.dsa.rope import RopeStyle
from dsa_contracts.dsa.states import Fp8Row, Local, Raw, Rotated
from dsa_contracts.dsa.typevars import L, N


@contract(
    returns=("q", "kv"),
    requires=(
        table_width_is_rope_dim(lambda call: call.tensor("k_rope").shape[-1], "qk_rope_head_dim"),
        table_covers_positions(),
        table_is_cosines_then_sines(),
        positions_go_with("k_rope"),
        scale_is_positive("quant_scale_q", "quant_scale_kv"),
    ),
    ensures=(widths_add_up("q", "q_nope", "q_rope"), widths_add_up("kv", "k_nope", "k_rope")),
    advice=(
        ("DSA102", "gather K after rope_quantize; `dsa-cp plan` shows the placement"),
        ("DSA106", "gather K after rope_quantize; q, K and positions are this rank's rows here"),
        ("DSA107", "the backend rotates here: do not apply RoPE before"),
        ("DSA115", "pass what rebuild_positions returned; positions counted 0.. on each rank have the right shape only"),
        ("DSA111", "build the cos/sin table for prefix + extend of the longest request before the first layer"),
    ),
    flow=(("q_nope", "q"), ("q_rope", "q"), ("k_nope", "kv"), ("k_rope", "kv")),
    sources=(("positions", ("rebuild_positions.positions",)),),
)
def rope_quantize(
    q_nope: QNope[L, N],
    q_rope: QRope[L, Raw, N],
    k_nope: KNope[Local[L], N],
    k_rope: KRope[Local[L], Raw, N],
    positions: TokenPositions[Local[L], N],
    cos_sin_cache: CosSinCache,
    rope_style: RopeStyle,
    quant_scale_q: float,
    quant_scale_kv: float,
    batch: CpBatch[L],
) -> tuple[Query[L, E4M3, N], DenseKvRows[Local[L], Fp8Row, Rotated, N]]:
    """RoPE and e4m3 quantisation of q and K in one pass; K lands in packed rows.

    Args:
        q_nope: absorbed latent queries. Row and head strides of each of the four inputs are free, each its own.
        q_rope: rope part of the queries.
        k_nope: KV latent.
        k_rope: rope part of the key, one head.
        positions: position of each row; the one row count of all six tensors is `nnz_local` or `nnz_padded`.
        cos_sin_cache: float32; row p holds the cosines, then the sines, of position p.
        rope_style: which elements form a pair.
        quant_scale_q: multiplies q before the cast.
        quant_scale_kv: multiplies K before the cast.
        batch: the batch.

    Returns:
        q: merged rows, latent first, then rope.
        kv: packed rows of `fp8` (latent, then rope), ready for the collective.

    Row order: local order of the layout. Aliasing: new memory. Sync: none. Rounding: RoPE in float32, times the scale, one
    cast, nearest even, saturated to +-448; NaN stays NaN.

    Raises:
        StageInputError: DSA101 to DSA109, DSA111, DSA112, DSA115, DSA125.
        StageOutputError: DSA124.

    Source: flashinfer `mla_rope_quantize_fp8` (rope.py@0.7.2); its Python layer checks none of the row counts.
    """
