"""Index tensors of a batch, made when somebody first reads them: development mode reads counts alone.

Each is computed on the CPU once and moved to the device once, for all ranks of the group.
"""

import threading
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from dsa_contracts.dsa.codes import BatchError
from dsa_contracts.dsa.indices import BatchLens, RankMajorRows, RowFacts, counted_rows, rank_major_rows, row_facts
from dsa_contracts.dsa.layout import Layout, RankRows, SegmentTable

Lens = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Extend, prefix and padded lengths."""

ALL_RANKS = -1
"""Stands for the rank in the key of a tensor that is the same on all ranks."""


class IndexSource:
    """What the index tensors of a batch are made from, and those that were made.

    Attributes:
        layout: which rank holds which tokens.
        cp_size: ranks.
        device: where the tensors go.
        decodes: whether each request is a decode; empty where none is.
        rows: how many rows each rank holds.
        nnz_padded: rows of every rank in the collective.
    """

    def __init__(
        self,
        layout: Layout,
        cp_size: int,
        lens: Lens,
        device: torch.device,
        nnz_padded: Callable[[int], int],
        decodes: Sequence[bool] = (),
    ) -> None:
        """Count the rows of all ranks.

        Args:
            layout: which rank holds which tokens.
            cp_size: ranks.
            lens: extend, prefix and padded lengths.
            device: where the tensors go.
            nnz_padded: rows of every rank in the collective, from those of the fullest, engine padding included.
            decodes: whether each request is a decode; empty where none is.

        Raises:
            BatchError: DSA303, the layout's segments do not hold the rows of the batch.
        """
        self.layout, self.cp_size, self.lens, self.device = layout, cp_size, lens, device
        self.decodes = tuple(decodes)
        self._host: dict[tuple[str, int], Tensor] = {}
        self._there: dict[tuple[str, int], Tensor] = {}
        self._tables: tuple[SegmentTable, ...] | None = None
        self._gathered: RankMajorRows | None = None
        self._facts: RowFacts | None = None
        self._lock = threading.RLock()
        self.rows = self._counted()
        self.nnz_padded = nnz_padded(max(self.rows.padded))

    def __getstate__(self) -> dict[str, object]:
        """What a copy takes along: no lock, and nothing that can be made anew."""
        kept = {
            name: getattr(self, name) for name in ("layout", "cp_size", "lens", "decodes", "device", "rows", "nnz_padded")
        }
        return {**kept, "_host": {}, "_there": {}, "_tables": None, "_gathered": None, "_facts": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        """Take the lengths and counts over."""
        self.__dict__.update(state, _lock=threading.RLock())

    def tensor(self, name: str, cp_rank: int) -> Tensor:
        """Return an index tensor of `CpBatch` by its name, on the device; ranks share those that are the same on all."""
        key = (name, cp_rank if name in _OF_ONE_RANK else ALL_RANKS)
        with self._lock:
            if key not in self._there:
                self._there[key] = self._on_host(key).to(self.device)
            return self._there[key]

    def _on_host(self, key: tuple[str, int]) -> Tensor:
        if key not in self._host:
            name, cp_rank = key
            self._host[key] = _OF_ONE_RANK[name](self, cp_rank) if name in _OF_ONE_RANK else _OF_ALL_RANKS[name](self)
        return self._host[key]

    def _counted(self) -> RankRows:
        """Return the rows of each rank, by the layout's formula, else from its segments."""
        extend_lens, _, padded_lens = self.lens
        rows = None if any(self.decodes) else self.layout.count_rows(extend_lens, padded_lens, self.cp_size)
        return counted_rows(self.tables, self._lens, self.layout.name) if rows is None else rows

    @property
    def tables(self) -> tuple[SegmentTable, ...]:
        """The segments of each rank; raises BatchError DSA303 where there is not one table a rank."""
        with self._lock:
            if self._tables is None:
                tables = tuple(self.layout.segment_tables_with_decodes(self.lens[2], self.cp_size, self.decodes))
                if len(tables) != self.cp_size:
                    message = f"{self.layout.name} gives {len(tables)} segment tables for cp_size {self.cp_size}"
                    raise BatchError(message, code="DSA303")
                self._tables = tables
            return self._tables

    @property
    def _lens(self) -> BatchLens:
        return BatchLens(*(torch.tensor(lens, dtype=torch.int64) for lens in self.lens))

    @property
    def gathered(self) -> RankMajorRows:
        """What stands where after the collective, on the CPU."""
        if self._gathered is None:
            found = counted_rows(self.tables, self._lens, self.layout.name)
            if found != self.rows:
                raise BatchError(
                    f"{self.layout.name} counts {list(self.rows.real)} rows, its segments have {list(found.real)}",
                    code="DSA303",
                    facts=[("padded", f"counts {list(self.rows.padded)}, segments {list(found.padded)}")],
                )
            self._gathered = rank_major_rows(self.tables, self._lens, self.nnz_padded, self.layout.name)
        return self._gathered

    @property
    def facts(self) -> RowFacts:
        """Request, position and causal len of each row, on the CPU."""
        if self._facts is None:
            self._facts = row_facts(self._lens)
        return self._facts

    def padded_rows(self, cp_rank: int) -> Tensor:
        """Return one rank's rows as they stand in the collective."""
        return self.gathered.rows.view(self.cp_size, self.nnz_padded)[cp_rank]

    def padded_index(self, cp_rank: int) -> Tensor:
        """Return where a rank's real rows stand among those."""
        return (self.padded_rows(cp_rank) >= 0).nonzero().squeeze(1)

    def local_rows(self, cp_rank: int) -> Tensor:
        """Return one rank's real rows."""
        return self.padded_rows(cp_rank)[self._on_host(("padded_index", cp_rank))]

    def local_request_of_row(self, cp_rank: int) -> Tensor:
        """Return the request of each of one rank's real rows."""
        return self.facts.request[self._on_host(("local_rows", cp_rank))].int()


_OF_ONE_RANK: dict[str, Callable[[IndexSource, int], Tensor]] = {
    "local_rows": IndexSource.local_rows,
    "padded_rows": IndexSource.padded_rows,
    "padded_index": IndexSource.padded_index,
    "local_request_of_row": IndexSource.local_request_of_row,
}

_OF_ALL_RANKS: dict[str, Callable[[IndexSource], Tensor]] = {
    "positions": lambda source: source.facts.position,
    "causal_lens": lambda source: source.facts.causal_len.int(),
    "request_of_row": lambda source: source.facts.request.int(),
    "gathered_rows": lambda source: source.gathered.rows,
    "restore_index": lambda source: source.gathered.restore_index,
}


def engine_rows_of(extend_lens: Sequence[int], padded_lens: Sequence[int], nnz_engine: int) -> Tensor:
    """Return the row at each place of what an engine carries, -1 for padding, on the CPU.

    Padding stands behind each request where `padded_lens` add up to what is carried, else behind the last.
    """
    if sum(padded_lens) != nnz_engine:
        nnz = sum(extend_lens)
        return torch.cat((torch.arange(nnz), torch.full((nnz_engine - nnz,), -1)))
    extend, padded = (torch.tensor(lens, dtype=torch.int64) for lens in (extend_lens, padded_lens))
    request = torch.repeat_interleave(padded)
    token = torch.arange(nnz_engine) - (padded.cumsum(0) - padded)[request]
    return torch.where(token < extend[request], (extend.cumsum(0) - extend)[request] + token, -1)


def cut_to(rows: Tensor, size: int) -> Tensor:
    """Return row indices for tensors of another number of rows: those behind are cut off, or are padding."""
    return rows[:size] if size <= len(rows) else torch.cat((rows, rows.new_full((size - len(rows),), -1)))
