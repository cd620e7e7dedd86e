"""Row formats as bars of bytes, all to one scale."""

from dsa_contracts.core.marks import DType
from dsa_contracts.core.matching import dtype_mark_text
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_cp.tools.review.contract_facts import ROW_FORMATS
from dsa_cp.tools.review.drawings.svg import WIDTH, Drawing, Sheet, number

_LOOKS = {"k_rope": "f1", "scales": "f2"}
"""Looks of the parts that are not the latent or the indexer's key."""

_SCALE = (WIDTH - 1) / max(row_format.row_bytes for row_format in ROW_FORMATS)


def format_drawing(sheet: Sheet, row_format: RowFormat[object, DType, DType]) -> str:
    """Return the drawing of one row format."""
    drawing = Drawing(sheet, f"format-{row_format.name}", f"A row of {row_format.name}: {row_format.row_bytes} bytes")
    parts = [f"{part.name}: {part.count} {dtype_mark_text(part.dtype)} at byte {part.offset}" for part in row_format.parts]
    for part in row_format.parts:
        x, width = number(part.offset * _SCALE), number(max(part.num_bytes * _SCALE - 0.7, 1))
        drawing.add(f'<path class="{_LOOKS.get(part.name, "f0")}" d="M{x} 2h{width}v16h-{width}z"/>')
    drawing.y = 19
    for text in parts:
        drawing.label(text)
    drawing.said = parts
    return drawing.render()
