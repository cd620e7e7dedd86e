"""Contract of `apply_rope`."""

from dsa_contracts.core.contract import contract
from dsa_contracts.dsa.aliases import CosSinCache, RawRows, RotatedRows, TokenPositions
from dsa_contracts.dsa.batch import CpBatch
from dsa_contracts.dsa.invariants import (
    positions_go_with,
    rotates_at_most_all,
    table_covers_positions,
    table_is_cosines_then_sines,
    table_width_is_rope_dim,
)
from dsa_contracts.dsa.rope import RopeStyle
from dsa_contracts.dsa.typevars import Ds, L, M, R


@contract(
    returns=("rotated",),
    requires=(
        rotates_at_most_all("x"),
        table_width_is_rope_dim(lambda call: int(call.number("rope_dim")), "rope_dim"),
        table_covers_positions(),
        table_is_cosines_then_sines(),
        positions_go_with("x"),
    ),
    advice=(
        ("DSA102", "x and positions must hold the same rows: K that was gathered needs global positions"),
        ("DSA106", "x and positions must hold the same rows in the same order"),
        ("DSA107", "RoPE is applied once; drop the second rotation"),
        ("DSA115", "pass what rebuild_positions returned; positions counted 0.. on each rank have the right shape only"),
        ("DSA111", "build the cos/sin table for prefix + extend of the longest request before the first layer"),
    ),
    flow=(("x", "rotated"),),
    sources=(("positions", ("batch.positions", "rebuild_positions.positions")),),
)
def apply_rope(
    x: RawRows[R, M, *Ds],
    positions: TokenPositions[R, M],
    cos_sin_cache: CosSinCache,
    rope_dim: int,
    rope_style: RopeStyle,
    batch: CpBatch[L],
) -> RotatedRows[R, M, *Ds]:
    """RoPE is applied to the first `rope_dim` elements of each row; the others are passed on.

    Args:
        x: rows to rotate; row and head strides are free.
        positions: position of each row of `x`; same rows, same order.
        cos_sin_cache: row p holds `rope_dim / 2` cosines, then as many sines, of position p.
        rope_dim: elements to rotate, even. All of them for q_rope and k_rope; the first 64 of 128 for the indexer.
        rope_style: which elements form a pair; required, since models differ and so may the indexer.
        batch: the batch.

    Returns:
        Rotated rows, bf16, rotated in float32 and rounded once.

    Row order: that of `x`. Aliasing: new memory. Sync: none.

    Raises:
        StageInputError: DSA101 to DSA109, DSA111, DSA115, DSA125.

    Source: DeepSeek-V3.2's rotation; sglang 0.5.23 `layers/rotary_embedding`.
    """
