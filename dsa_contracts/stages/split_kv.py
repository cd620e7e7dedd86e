"""Contract of `split_kv`."""

from dsa_contracts.batch import CpBatch
from dsa_contracts.dims import KvLoraRank, QkRopeHeadDim, RowBytes
from dsa_contracts.formats import RowFormat
from dsa_contracts.invariants import row_width_matches_format, widths_match_format
from dsa_contracts.records import contract
from dsa_contracts.states import U8, Packed, Plain, UnitLast
from dsa_contracts.tensors import Ten
from dsa_contracts.typevars import ND, RD, C, F, L, M, P, R


@contract(
    returns=("k_nope", "k_rope"),
    requires=(row_width_matches_format("kv"),),
    ensures=(widths_match_format(("k_nope", "k_nope"), ("k_rope", "k_rope")),),
    advice=(("DSA110", "split rows by the format they were packed in: 656-byte rows are not flat fp8"),),
)
def split_kv(
    kv: Ten[R, Packed[F, P], U8, UnitLast, M, RowBytes],
    row_format: RowFormat[F, ND, RD],
    strides: type[C],
    batch: CpBatch[L],
) -> tuple[Ten[R, Plain, ND, C, M, KvLoraRank], Ten[R, P, RD, C, M, QkRopeHeadDim]]:
    """Latent and rope part of packed rows, as typed columns with the strides that the consumer takes.

    Args:
        kv: packed rows, as bytes.
        row_format: the format they were packed in.
        strides: `PackedRowStride` for views that keep the row stride, `Contiguous` for copies.
        batch: the batch.

    Returns:
        k_nope: latent codes or values; `fp8_656` codes are still to be multiplied by the scales in the row.
        k_rope: rope part, in the RoPE state of the rows.

    Row order: that of `kv`. Aliasing: views of `kv` unless `strides` is `Contiguous`. Sync: none.

    Raises:
        StageInputError: DSA101, DSA102, DSA103, DSA104, DSA107, DSA108, DSA110.

    Source: sglang 0.5.15 and 0.5.23 hand such views on unguarded (strides (576, 1), rope at offset 512).
    """
