"""The record of one attention backend: what it reads, rotates, takes and needs, each fact with where it was read.

The planner decides from these facts and never from a backend's name. A fact that could not be found says so in its
source, and its value is the one that can do no harm: length 0 is not legal, nothing is returned, strides are dense.
"""

from dataclasses import dataclass
from typing import ClassVar, Generic, Literal, TypeVar

Phase = Literal["prefill", "decode"]
"""Prefill runs sharded over the context-parallel ranks; decode does not."""

KvScale = Literal["one", "layer", "rows"]
"""The scale of stored values: 1; one a layer, beside the pool; or several inside each row."""

QueryDtype = Literal["bf16", "e4m3"]
FusedWith = Literal["quantisation", "cache write"]
Strides = Literal["PackedRowStride", "Contiguous"]
Lse = Literal["not returned", "returned", "returned, -inf for empty rows"]

V_co = TypeVar("V_co", covariant=True)


class Record:
    """Base of the records: one that is read from a file has no key that is not here."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}


@dataclass(frozen=True)
class Cited(Record, Generic[V_co]):
    """A value, and the file and version that it was read from, or why it is assumed."""

    value: V_co
    source: str


@dataclass(frozen=True)
class IntRule(Record):
    """Which integers are legal: `low` to `high`, multiples of `multiple_of` and, where given, divisors of `divides`."""

    low: int = 1
    high: int | None = None
    multiple_of: int = 1
    divides: int | None = None

    def admits(self, number: int) -> bool:
        """Whether a number is legal."""
        if number < self.low or (self.high is not None and number > self.high) or number % self.multiple_of:
            return False
        return self.divides is None or self.divides % number == 0

    def describe(self) -> str:
        """Return the rule in words: `a multiple of 16 from 16 to 128`."""
        parts = [] if self.multiple_of == 1 else [f"a multiple of {self.multiple_of}"]
        parts += [] if self.divides is None else [f"a divisor of {self.divides}"]
        if self.high == self.low:
            return str(self.low)
        if self.high is not None:
            parts.append(f"from {self.low} to {self.high}")
        elif self.low > self.multiple_of:
            parts.append(f"at least {self.low}")
        return " ".join(parts) or "any"


Rules = tuple[IntRule, ...]
"""A number is legal where one of the rules admits it; no rule at all admits every number."""


@dataclass(frozen=True)
class Reading(Record):
    """How a backend reads pool rows of one format.

    Attributes:
        row_format: `bf16`, `fp8` or `fp8_656`.
        phases: where it does.
        query_dtypes: dtypes of the merged queries that it takes with these rows.
        kv_scale: the scale that it applies to stored values.
        source: where this was read.
        converts: what it makes of the rows before its kernel reads them; empty where the kernel reads them as they are.
    """

    row_format: str
    phases: tuple[Phase, ...]
    query_dtypes: tuple[QueryDtype, ...]
    kv_scale: KvScale
    source: str
    converts: str = ""


@dataclass(frozen=True)
class Rotation(Record):
    """Rows of one format are rotated by the backend, q and K in one call with one vector of positions.

    Attributes:
        row_format: the format.
        fused_with: what else the call does. Behind `quantisation` the rows are in hand and can be gathered; a `cache write`
            leaves them in the pool.
        can_bypass: whether the engine can rotate before the backend instead.
        source: where this was read.
    """

    row_format: str
    fused_with: FusedWith
    can_bypass: bool
    source: str


@dataclass(frozen=True)
class Need(Record):
    """Metadata that the engine must build for the backend.

    Attributes:
        field: its name, as the engine calls it.
        purpose: what it is, and of which rows.
        source: where this was read.
        phases: phases that need it.
        row_formats: row formats that need it; empty: all.
        when: `always`, or only with a `prefix`.
    """

    field: str
    purpose: str
    source: str
    phases: tuple[Phase, ...] = ("prefill", "decode")
    row_formats: tuple[str, ...] = ()
    when: Literal["always", "prefix"] = "always"


@dataclass(frozen=True)
class Capability(Record):
    """One attention backend.

    Attributes:
        name: written name.
        kernel: library and function that attends.
        reads: row formats that it reads, and how.
        rotates: row formats whose K it rotates itself.
        needs: metadata that it needs besides what the stages' contracts ask for.
        halves_strides: strides of the K halves that its cache write takes.
        zero_length_rows: whether a row that sees no key is legal; else padding rows have length 1 and a page of their own.
        lse: whether the logarithm of the softmax denominator comes back.
        topk_widths: legal widths of the top-k indices.
        block_table_widths: legal widths of the block table.
        page_sizes: legal page sizes.
        head_counts: legal numbers of query heads on a rank, padding by the backend included.
        devices: compute capabilities (`9.0`) or architectures (`gfx950`) that it runs on; empty: any.
        layouts: context-parallel layouts that it takes, without parameters; empty: any.
        context_parallel: phases in which its queries may be a rank's share of the batch.
    """

    name: str
    kernel: str
    reads: tuple[Reading, ...]
    rotates: tuple[Rotation, ...]
    needs: tuple[Need, ...]
    halves_strides: Cited[Strides]
    zero_length_rows: Cited[bool]
    lse: Cited[Lse]
    topk_widths: Cited[Rules]
    block_table_widths: Cited[Rules]
    page_sizes: Cited[Rules]
    head_counts: Cited[Rules]
    devices: Cited[tuple[str, ...]]
    layouts: Cited[tuple[str, ...]]
    context_parallel: Cited[tuple[Phase, ...]]

    def reading(self, row_format: str, phase: str) -> Reading | None:
        """Return how it reads rows of a format in a phase, None where it does not."""
        found = (way for way in self.reads if way.row_format == row_format and phase in way.phases)
        return next(found, None)

    def rotation(self, row_format: str) -> Rotation | None:
        """Return how it rotates rows of a format, None where it takes them rotated."""
        return next((way for way in self.rotates if way.row_format == row_format), None)

    def needed(self, row_format: str, phase: str, *, prefix: bool) -> tuple[Need, ...]:
        """Return the metadata that it needs for a row format in a phase."""
        return tuple(
            need
            for need in self.needs
            if phase in need.phases
            and row_format in (need.row_formats or (row_format,))
            and (prefix or need.when == "always")
        )
