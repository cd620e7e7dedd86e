"""A layout whose segments an engine has cut: the batch takes them as they are, whatever formula made them."""

from collections.abc import Collection, Sequence

import torch

from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.dsa.codes import BatchError
from dsa_contracts.dsa.layout import Layout, SegmentTable


class GivenLayout(Layout):
    """The segments of one batch, as an engine gives them.

    Equal by name: what a contract reads of a layout is its name, so that the batches of one engine layout share the calls
    that passed, each with segments of its own.

    Attributes:
        tables: one table a rank.
    """

    def __init__(self, name: str, tables: Sequence[SegmentTable]) -> None:
        """Take the tables of all ranks; raises ArgumentError DSA602 where the name is empty or no text."""
        if not isinstance(name, str) or not name:
            raise ArgumentError(f"name is {name!r}; it must be the written name of the engine's layout")
        self._name = name
        self.tables = tuple(tables)

    @classmethod
    def from_lists(
        cls, name: str, segments: Sequence[Sequence[tuple[int, int, int]]], *, replicated: Collection[int] = ()
    ) -> "GivenLayout":
        """Return the layout of segments in lists.

        Args:
            name: the layout's written name.
            segments: of each rank (request, start, stop) in the order of its rows; empty ones are left out.
            replicated: requests that every rank holds; rank 0 writes their rows for all.
        """
        tables = []
        for rank, listed in enumerate(segments):
            held = [segment for segment in listed if segment[1] != segment[2]]
            written = [rank == 0 or segment[0] not in replicated for segment in held]
            table = torch.tensor(held, dtype=torch.int64).view(-1, 3)
            tables.append(SegmentTable(table, torch.tensor(written, dtype=torch.bool)))
        return cls(name, tables)

    @classmethod
    def from_rows(cls, name: str, rows: Sequence[Sequence[int]], padded_lens: Sequence[int]) -> "GivenLayout":
        """Return the layout of the rows that each rank holds.

        Args:
            name: the layout's written name.
            rows: of each rank, in its order: tokens of the flattened batch, the engine's padding of a request counted as its
                tokens; negative ones, which pad a shard, stand behind all others and are left out.
            padded_lens: tokens of each request, engine padding included.

        Raises:
            BatchError: DSA303, a row stands behind padding, or is of no request.
        """
        stops = torch.tensor(padded_lens, dtype=torch.int64).cumsum(0)
        starts = torch.cat((stops.new_zeros(1), stops[:-1]))
        listed = []
        for rank, held in enumerate(rows):
            real = [row for row in held if row >= 0]
            if any(row < 0 for row in held[: len(real)]) or any(row >= sum(padded_lens) for row in real):
                raise BatchError(f"{name}: rows {list(held)} of rank {rank} are no rows of this batch", code="DSA303")
            at = torch.tensor(real, dtype=torch.int64)
            request = torch.searchsorted(stops, at, right=True)
            is_start = torch.ones_like(at, dtype=torch.bool)
            is_start[1:] = (at[1:] != at[:-1] + 1) | (request[1:] != request[:-1])
            is_stop = torch.cat((is_start[1:], is_start.new_ones(min(len(real), 1))))
            first, request, last = at[is_start], request[is_start], at[is_stop]
            segments = torch.stack((request, first - starts[request], last + 1 - starts[request]), dim=1)
            listed.append([(int(each[0]), int(each[1]), int(each[2])) for each in segments.tolist()])
        return cls.from_lists(name, listed)

    @property
    def name(self) -> str:
        """The name that it was given."""
        return self._name

    def segment_tables(self, padded_lens: Sequence[int], cp_size: int) -> tuple[SegmentTable, ...]:
        """Return the engine's segments; the batch compares them with its lengths and ranks."""
        return self.tables

    def __eq__(self, other: object) -> bool:
        """Whether the other is such a layout of the same name."""
        return isinstance(other, GivenLayout) and other.name == self.name

    def __hash__(self) -> int:
        """The hash of the name."""
        return hash((GivenLayout, self._name))

    def __repr__(self) -> str:
        """Return the name and how many ranks there are."""
        return f"GivenLayout({self._name!r}, {len(self.tables)} ranks)"
