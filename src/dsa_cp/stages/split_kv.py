"""Reference of `split_kv`: typed views of byte columns; copies only where the consumer asks for them."""

from torch import Tensor

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, brand, stage
from dsa_contracts.core.marks import Contiguous
from dsa_contracts.dsa.aliases import KvRows, LatentColumns, RopeColumns
from dsa_contracts.dsa.row_formats import RowFormat, RowPart
from dsa_contracts.dsa.typevars import ND, RD, C, F, K, L, P, R


@stage(contracts.split_kv)
def split_kv(
    kv: KvRows[R, F, P, K],
    row_format: RowFormat[F, ND, RD],
    strides: type[C],
    batch: CpBatch[L],
) -> tuple[LatentColumns[R, ND, C, K], RopeColumns[R, P, RD, C, K]]:
    """See `dsa_contracts.stages.split_kv`."""
    copies = strides is Contiguous
    k_nope = part_of(kv, row_format.part("k_nope"), copies=copies)
    k_rope = part_of(kv, row_format.part("k_rope"), copies=copies)
    return brand(k_nope), brand(k_rope)


def part_of(rows: Tensor, part: RowPart, *, copies: bool = False) -> Tensor:
    """Return one part of packed rows in its own dtype: a view that keeps the row stride, or a dense copy.

    Args:
        rows: uint8 [..., row_bytes] with last stride 1; the part's offset and the row stride are multiples of its itemsize.
        part: which bytes.
        copies: whether to return dense new memory.
    """
    columns = rows[..., part.columns]
    return (columns.contiguous() if copies else columns).view(part.dtype.torch_dtype)
