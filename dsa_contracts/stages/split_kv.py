"""Contract of `split_kv`."""

from dsa_contracts.core.contract import contract
from dsa_contracts.core.invariant import Call, Invariant
from dsa_contracts.core.marks import Contiguous, RowStride
from dsa_contracts.dsa.aliases import KvRows, LatentColumns, RopeColumns
from dsa_contracts.dsa.batch import CpBatch
from dsa_contracts.dsa.invariants import row_width_matches_format, widths_match_format
from dsa_contracts.dsa.invariants.reading import row_format_of
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.typevars import ND, RD, C, F, K, L, P, R


def rows_can_be_viewed() -> Invariant:
    """Rows lie so that each part of them has a view in its own dtype, with the strides that the consumer takes."""

    def check(call: Call) -> str | None:
        kv, strides = call.tensor("kv"), call.shown("strides")
        if strides is Contiguous or kv.numel() == 0:
            return None
        apart = kv.stride(0) if kv.shape[0] > 1 else row_format_of(call).row_bytes
        if isinstance(strides, type) and issubclass(strides, RowStride) and apart != row_format_of(call).row_bytes:
            return f"rows of kv are {apart} bytes apart, not {row_format_of(call).row_bytes}"
        for part in row_format_of(call).parts:
            size, start = part.dtype.torch_dtype.itemsize, kv.storage_offset() + part.offset
            if apart % size:
                return f"rows of kv are {apart} bytes apart, a view of {part.name} needs multiples of {size}"
            if start % size:
                return f"{part.name} of kv starts at byte {start} of its memory, a view needs multiples of {size}"
        return None

    statement = "row stride and offset of kv are multiples of each part's itemsize; the row stride is the one asked for"
    return Invariant("rows_can_be_viewed", "DSA104", "kv", statement, False, check, reads_offset=True)


@contract(
    returns=("k_nope", "k_rope"),
    requires=(row_width_matches_format("kv"), rows_can_be_viewed()),
    ensures=(widths_match_format(("k_nope", "k_nope"), ("k_rope", "k_rope")),),
    advice=(
        ("DSA104", "ask for Contiguous, which copies, or hand on the packed rows themselves"),
        ("DSA110", "split rows by the format they were packed in: 656-byte rows are not flat fp8"),
    ),
    flow=(("kv", "k_nope"), ("kv", "k_rope")),
)
def split_kv(
    kv: KvRows[R, F, P, K],
    row_format: RowFormat[F, ND, RD],
    strides: type[C],
    batch: CpBatch[L],
) -> tuple[LatentColumns[R, ND, C, K], RopeColumns[R, P, RD, C, K]]:
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
        StageInputError: DSA101 to DSA110, DSA125.
        StageOutputError: DSA124.

    Source: sglang 0.5.15 and 0.5.23 hand such views on unguarded (strides (576, 1), rope at offset 512).
    """
