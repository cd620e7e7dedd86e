"""The small batch that the drawings show: real index tensors of `build_batches`, and what its tokens are called."""

from dataclasses import dataclass

import torch

from dsa_contracts import CpBatch, Layout
from dsa_cp.layouts import Interleave, VllmZigzag, Zigzag, build_batches

CP_SIZE = 2
EXTEND_LENS, PREFIX_LENS = (7, 4), (2, 0)
PAGE_SIZE, NUM_PAGES = 4, 6
PAGES = ((3, 0, 4), (1,))
"""Pages of each request, in token order."""

LAYOUTS: tuple[Layout, ...] = (Zigzag(), Interleave(), VllmZigzag())


@dataclass(frozen=True)
class Cell:
    """One row or slot.

    Attributes:
        kind: `a` or `b` for a token of the first or second request, `old` for a token that was cached before, `pad` for
            padding, `none` for an empty slot, `other` for what is no token.
        text: what stands in it.
        row: the row of the batch, None for what is none.
    """

    kind: str
    text: str
    row: int | None = None


PADDING = Cell("pad", "")
EMPTY = Cell("none", "")


@dataclass(frozen=True)
class Strip:
    """Cells in groups: ranks, pages, or one group of all; `captions` has a text for each group, `text` says it in words."""

    groups: tuple[tuple[Cell, ...], ...]
    captions: tuple[str, ...]

    @property
    def text(self) -> str:
        """The strip in words, as in `rank 0: A2 A3; rank 1: A4 padding`."""
        said = [" ".join(cell.text or ("padding" if cell.kind == "pad" else "-") for cell in group) for group in self.groups]
        pairs = zip(self.captions, said, strict=True)
        return "; ".join(f"{caption}: {cells}" if caption else cells for caption, cells in pairs)


class Scene:
    """One layout's view of the batch.

    Args:
        layout: which rank holds which tokens.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.batches: tuple[CpBatch[Layout], ...] = build_batches(
            layout,
            CP_SIZE,
            EXTEND_LENS,
            PREFIX_LENS,
            out_cache_loc=torch.tensor(_slots()),
            page_table=torch.tensor([[3, 0, 4], [1, 0, 0]], dtype=torch.int32),
            page_size=PAGE_SIZE,
        )

    @property
    def batch(self) -> CpBatch[Layout]:
        """The batch as rank 0 sees it; what all ranks share is the same on each."""
        return self.batches[0]

    def token(self, row: int) -> Cell:
        """Return the cell of a row: its request's letter, and its position in the request."""
        if row < 0:
            return PADDING
        request, position = int(self.batch.request_of_row[row]), int(self.batch.positions[row])
        return Cell("ab"[request], f"{'AB'[request]}{position}", row)

    def sequence(self) -> Strip:
        """All rows in sequence order."""
        return Strip((tuple(self.token(row) for row in range(self.batch.nnz)),), ("",))

    def local(self) -> Strip:
        """Each rank's rows, in local order."""
        groups = tuple(tuple(self.token(row) for row in batch.local_rows.tolist()) for batch in self.batches)
        return Strip(groups, self._ranks())

    def rank_major(self) -> Strip:
        """The gathered rows, padding included."""
        rows = self.batch.gathered_rows.view(CP_SIZE, -1).tolist()
        return Strip(tuple(tuple(self.token(row) for row in rank) for rank in rows), self._ranks())

    def pool(self, *, is_written: bool) -> Strip:
        """The slots of the pool by page: cached tokens, and the batch's tokens where they are written."""
        slots = [EMPTY] * (PAGE_SIZE * NUM_PAGES)
        for letter, pages, prefix in zip("AB", PAGES, PREFIX_LENS, strict=True):
            for position in range(prefix):
                slots[pages[position // PAGE_SIZE] * PAGE_SIZE + position % PAGE_SIZE] = Cell("old", f"{letter}{position}")
        if is_written and self.batch.rank_major_loc is not None:
            pairs = zip(self.batch.rank_major_loc.tolist(), self.batch.gathered_rows.tolist(), strict=True)
            for slot, row in pairs:
                if slot >= 0:
                    slots[slot] = self.token(row)
        groups = tuple(tuple(slots[page * PAGE_SIZE : (page + 1) * PAGE_SIZE]) for page in range(NUM_PAGES))
        return Strip(groups, tuple(f"page {page}" for page in range(NUM_PAGES)))

    def requests(self) -> Strip:
        """One row a request: its pages."""
        groups = [tuple(Cell("other", str(page)) for page in pages) for pages in PAGES]
        return Strip(tuple(groups), ("pages of A", "pages of B"))

    def table(self) -> Strip:
        """Rows by position."""
        return Strip((tuple(Cell("other", str(position)) for position in range(self.batch.max_seq_len)),), ("",))

    def _ranks(self) -> tuple[str, ...]:
        return tuple(f"rank {rank}" for rank in range(CP_SIZE))


def _slots() -> list[int]:
    """Return the slot of each new token, in sequence order."""
    return [
        pages[position // PAGE_SIZE] * PAGE_SIZE + position % PAGE_SIZE
        for pages, prefix, extend in zip(PAGES, PREFIX_LENS, EXTEND_LENS, strict=True)
        for position in range(prefix, prefix + extend)
    ]
