"""How many rows a batch has, of which kind: what follows from its lengths, read by every stage and by messages."""

from functools import cached_property

from dsa_contracts.core.scope import Scope
from dsa_contracts.dsa.index_source import IndexSource
from dsa_contracts.dsa.layout import Layout


class BatchRows(Scope):
    """The counts of a batch on one rank, from the lengths that `CpBatch` holds."""

    layout: Layout
    cp_size: int
    cp_rank: int
    extend_lens: tuple[int, ...]
    prefix_lens: tuple[int, ...]
    padded_lens: tuple[int, ...]
    rank_lens: tuple[int, ...]
    nnz_padded: int
    shard_size: int | None
    engine_size: int | None
    source: IndexSource | None

    @cached_property
    def row_counts(self) -> dict[str, int]:
        """The row counts that every stage of this batch shares, by the name of their dim."""
        counts = {
            "nnz": self.nnz,
            "nnz_local": self.nnz_local,
            "nnz_padded": self.nnz_padded,
            "nnz_gathered": self.nnz_gathered,
            "num_requests": self.num_requests,
        }
        if self.nnz_shard != self.nnz_padded:
            counts["nnz_shard"] = self.nnz_shard
        if self.nnz_engine != self.nnz:
            counts["nnz_engine"] = self.nnz_engine
        return counts

    @cached_property
    def nnz(self) -> int:
        """Real tokens of the batch over all ranks."""
        return sum(self.extend_lens)

    @property
    def nnz_local(self) -> int:
        """Real tokens of this rank."""
        return self.rank_lens[self.cp_rank]

    @property
    def nnz_gathered(self) -> int:
        """Rows that come out of the collective, padding included."""
        return self.cp_size * self.nnz_padded

    @property
    def nnz_shard(self) -> int:
        """Rows of this rank's tensors as the engine shapes them."""
        return self.nnz_padded if self.shard_size is None else self.shard_size

    @property
    def nnz_engine(self) -> int:
        """Rows of all ranks as the engine carries them, its padding included."""
        return self.nnz if self.engine_size is None else self.engine_size

    @property
    def num_requests(self) -> int:
        """Requests of the batch."""
        return len(self.extend_lens)

    @cached_property
    def seq_lens(self) -> tuple[int, ...]:
        """Prefix plus extend of each request, exactly."""
        return tuple(prefix + extend for prefix, extend in zip(self.prefix_lens, self.extend_lens, strict=True))

    @cached_property
    def max_seq_len(self) -> int:
        """Keys of the longest request; every position of the batch, on any rank, is below it."""
        return max(self.seq_lens, default=0)

    def meaning_of(self, size: int) -> str:
        """Return which row count of the batch a number of rows is, and of which rows."""
        meant = [f"{size} is {name}, {text}" for name, text in _ROW_MEANING.items() if self.row_counts.get(name) == size]
        return meant[0] if meant else ""

    @property
    def where(self) -> str:
        """Rank, layer and layout in one line, for messages."""
        layer = "" if self.layer is None else f", layer {self.layer}"
        return f"cp_rank={self.cp_rank} of {self.cp_size}{layer}, {self.layout.name}"


_ROW_MEANING = {
    "nnz": "the rows of all ranks",
    "nnz_local": "this rank's rows without padding",
    "nnz_padded": "this rank's rows with padding",
    "nnz_gathered": "the gathered rows of all ranks, padding included",
    "nnz_shard": "this rank's rows as the engine shapes them",
    "nnz_engine": "the rows of all ranks as the engine carries them, padding included",
}


def short_text(lens: tuple[int, ...]) -> str:
    """Return lengths for a message, or their count and hash where there are many."""
    return str(list(lens)) if len(lens) <= 8 else f"{len(lens)} lengths #{hash(lens) & 0xFFFFFFFF:08x}"
