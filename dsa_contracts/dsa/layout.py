"""What a context-parallel layout must say: which segments of which request each rank holds, in which order."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor


class Segment(NamedTuple):
    """Tokens `start` to `stop - 1` of one request, counted from the first token of the extend (the prefix excluded)."""

    request: int
    start: int
    stop: int


class SegmentTable(NamedTuple):
    """The segments of one rank, in local row order.

    Attributes:
        segments: int64 [num_segments, 3] on the CPU: request, start, stop; `start < stop` in every row.
        written: bool [num_segments] on the CPU: whether this rank is the one writer of the segment's rows. False on all
            ranks but one for a request that the layout replicates.
    """

    segments: Tensor
    written: Tensor

    def listed(self) -> list[Segment]:
        """Return the segments as a list, for people."""
        return [Segment(*row) for row in self.segments.tolist()]


class Layout(ABC):
    """A context-parallel layout. Equal layouts compare equal; a parameter (a block size) takes part in the comparison."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The layout's written name, parameters included, as in `interleave(block=64)`."""

    @abstractmethod
    def segment_tables(self, padded_lens: Sequence[int], cp_size: int) -> tuple[SegmentTable, ...]:
        """Return each rank's segments.

        Args:
            padded_lens: tokens of each request as the engine holds them, engine padding included.
            cp_size: ranks.

        Returns:
            One table a rank. Together they hold every token of every request, once where `written` is true.
        """

    def segment_tables_with_decodes(
        self, padded_lens: Sequence[int], cp_size: int, decodes: Sequence[bool]
    ) -> tuple[SegmentTable, ...]:
        """Return each rank's segments of a batch in which some requests are decodes.

        A layout that does not tell decodes apart, as here, cuts them as it cuts any request.

        Args:
            padded_lens: tokens of each request as the engine holds them, engine padding included.
            cp_size: ranks.
            decodes: whether each request is a decode; empty where none is.
        """
        return self.segment_tables(padded_lens, cp_size)
