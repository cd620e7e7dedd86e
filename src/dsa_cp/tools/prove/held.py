"""What the ranks hold, as text that can be checked by hand."""

from collections.abc import Sequence

from dsa_contracts.dsa.layout import Layout, Segment, SegmentTable

_LONG_RUN = 8
"""Tokens in a row that are written out; longer runs are written by their ends."""


def held_rows(
    layout: Layout, cp_size: int, extend_lens: Sequence[int], padded_lens: Sequence[int], decodes: Sequence[bool] = ()
) -> list[tuple[str, str]]:
    """Return what each rank holds, in local order, as (`rank r`, tokens); ranks without rows share the last line."""
    held, empty = [], []
    for rank, table in enumerate(layout.segment_tables_with_decodes(padded_lens, cp_size, decodes)):
        line = table_text(table, extend_lens)
        if line:
            held.append((f"rank {rank}", line))
        else:
            empty.append(str(rank))
    return [*held, *([("no rows", f"on rank {', '.join(empty)}")] if empty else [])]


def table_text(table: SegmentTable, extend_lens: Sequence[int]) -> str:
    """Return the segments of one rank; nothing where it has none."""
    marks = ("" if written else " (copy, not written)" for written in table.written.tolist())
    texts = (segment_text(segment, extend_lens) for segment in table.listed())
    return " | ".join(text + mark for text, mark in zip(texts, marks, strict=True))


def segment_text(segment: Segment, extend_lens: Sequence[int]) -> str:
    """Return request and tokens of a segment; `_` is a token of engine padding."""
    known = 0 <= segment.request < len(extend_lens)
    real = min(segment.stop, extend_lens[segment.request]) if known else segment.stop
    tokens = [str(token) for token in range(segment.start, real)]
    padding = ["_"] * (segment.stop - max(segment.start, real))
    if len(tokens) > _LONG_RUN:
        tokens = [f"{tokens[0]}..{tokens[-1]}"]
    return f"request {segment.request}: {' '.join([*tokens, *padding])}"
