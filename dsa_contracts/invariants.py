"""Named invariants: facts about a call that neither a shape nor a brand can say.

An invariant has a name that is a fact, a code, and a function of the call that returns what is wrong, or None. Those that
read device data (`reads_data`) run in `values` mode only; the others are functions of metadata and host numbers, so that
a call that passed once need not be looked at again.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import get_origin

import torch
from torch import Tensor

from dsa_contracts.batch import CpBatch
from dsa_contracts.brands import brand_of
from dsa_contracts.comm import Comm
from dsa_contracts.errors import ContractDefinitionError
from dsa_contracts.formats import RowFormat
from dsa_contracts.layout import Layout
from dsa_contracts.states import Local


@dataclass(frozen=True)
class Call:
    """The arguments of one call by name, and its return values by name once it has returned."""

    stage: str
    values: dict[str, object]

    def tensor(self, name: str) -> Tensor:
        """Return a tensor argument or return value."""
        value = self.values[name]
        if not isinstance(value, Tensor):
            raise ContractDefinitionError(f"an invariant of {self.stage} reads {name} as a tensor; it is {type(value)}")
        return value

    def number(self, name: str) -> float:
        """Return a scalar argument."""
        value = self.values[name]
        if not isinstance(value, int | float):
            raise ContractDefinitionError(f"an invariant of {self.stage} reads {name} as a number; it is {type(value)}")
        return float(value)

    @property
    def batch(self) -> CpBatch[Layout]:
        """The batch of the call."""
        value = self.values["batch"]
        if not isinstance(value, CpBatch):
            raise ContractDefinitionError(f"{self.stage} got no batch")
        return value

    @property
    def row_format(self) -> RowFormat[object, object, object]:  # type: ignore[type-var]
        """The row format of the call."""
        value = self.values["row_format"]
        if not isinstance(value, RowFormat):
            raise ContractDefinitionError(f"{self.stage} got no row format")
        return value


@dataclass(frozen=True)
class Invariant:
    """A named fact about a call.

    Attributes:
        name: the fact, as in `positions_match_rows`.
        code: the code of the error that its violation raises.
        subject: the parameter or return value that it is about.
        statement: the fact in a sentence, for tables and for the `expected` line of the error.
        reads_data: whether it reads device data.
        check: returns what is wrong in a call, None where nothing is.
        reads_offset: whether it reads where in its memory the subject starts; a remembered call then goes by that too.
    """

    name: str
    code: str
    subject: str
    statement: str
    reads_data: bool
    check: Callable[[Call], str | None] = field(repr=False, compare=False)
    reads_offset: bool = False


def row_width_matches_format(rows: str) -> Invariant:
    """Packed rows are as wide as their row format says."""

    def check(call: Call) -> str | None:
        width, want = call.tensor(rows).shape[-1], call.row_format.row_bytes
        return None if width == want else f"{rows} is {width} bytes wide, a row of {call.row_format.name} has {want}"

    return Invariant("row_width_matches_format", "DSA110", rows, f"{rows} rows are row_format.row_bytes wide", False, check)


def table_covers_positions() -> Invariant:
    """The cos/sin table has a row for every position of the batch, on any rank; known without reading the device."""

    def check(call: Call) -> str | None:
        rows, need = call.tensor("cos_sin_cache").shape[0], call.batch.max_seq_len
        return None if rows >= need else f"cos_sin_cache has {rows} rows, positions of this batch go up to {need - 1}"

    statement = "cos_sin_cache has more rows than the largest position of the batch over all ranks"
    return Invariant("table_covers_positions", "DSA111", "cos_sin_cache", statement, False, check)


def table_width_is_rope_dim(rope: Callable[[Call], int], what: str) -> Invariant:
    """The cos/sin table is as wide as what is rotated: half cosines, half sines."""

    def check(call: Call) -> str | None:
        width, want = call.tensor("cos_sin_cache").shape[1], rope(call)
        return None if width == want and want % 2 == 0 else f"cos_sin_cache is {width} wide, {what} is {want}"

    statement = f"cos_sin_cache is {what} wide: cosines, then sines; an even number"
    return Invariant("table_width_is_rope_dim", "DSA111", "cos_sin_cache", statement, False, check)


def rotates_at_most_all(tensor: str) -> Invariant:
    """`rope_dim` is no larger than the last dim of what is rotated."""

    def check(call: Call) -> str | None:
        last, want = call.tensor(tensor).shape[-1], int(call.number("rope_dim"))
        return None if 0 < want <= last else f"rope_dim is {want}, {tensor} has last dim {last}"

    return Invariant("rotates_at_most_all", "DSA111", tensor, f"0 < rope_dim <= last dim of {tensor}", False, check)


def scale_is_positive(*names: str) -> Invariant:
    """Scales are finite and positive."""

    def check(call: Call) -> str | None:
        for name in names:
            value = call.number(name)
            if not (math.isfinite(value) and value > 0):
                return f"{name} is {value}"
        return None

    return Invariant("scale_is_positive", "DSA112", names[0], f"{', '.join(names)}: finite and > 0", False, check)


def scale_is_one_unless_quantized(*names: str) -> Invariant:
    """A cache that is not quantised has no scale: checkpoints may carry one all the same."""

    def check(call: Call) -> str | None:
        if call.row_format.is_quantized:
            return None
        wrong = [f"{name} is {call.number(name)}" for name in names if call.number(name) != 1.0]
        return f"{wrong[0]}, and rows of {call.row_format.name} are not quantised" if wrong else None

    statement = f"{', '.join(names)}: 1 where the row format is not quantised"
    return Invariant("scale_is_one_unless_quantized", "DSA112", names[0], statement, False, check)


def comm_is_the_batch_group() -> Invariant:
    """The collective's size and rank are those that the batch was cut for."""

    def check(call: Call) -> str | None:
        comm, batch = call.values["comm"], call.batch
        if not isinstance(comm, Comm) or (comm.cp_size, comm.cp_rank) == (batch.cp_size, batch.cp_rank):
            return None
        return f"comm is rank {comm.cp_rank} of {comm.cp_size}, the batch was cut for rank {batch.cp_rank} of {batch.cp_size}"

    return Invariant("comm_is_the_batch_group", "DSA113", "comm", "comm is the CP group of the batch", False, check)


def widths_add_up(total: str, *parts: str) -> Invariant:
    """The last dim of `total` is the sum of the last dims of its parts."""

    def check(call: Call) -> str | None:
        want = sum(call.tensor(part).shape[-1] for part in parts)
        got = call.tensor(total).shape[-1]
        return None if got == want else f"{total} is {got} wide, {' + '.join(parts)} are {want}"

    statement = f"last dim of {total} = last dims of {' + '.join(parts)}"
    return Invariant("widths_add_up", "DSA124", total, statement, False, check)


def widths_match_format(*pairs: tuple[str, str]) -> Invariant:
    """A tensor's last dim is the number of elements of the part of the row format that it fills or comes from."""

    def check(call: Call) -> str | None:
        for name, part in pairs:
            got, want = call.tensor(name).shape[-1], call.row_format.part(part).count
            if got != want:
                return f"{name} is {got} wide, {part} of {call.row_format.name} has {want} elements"
        return None

    statement = ", ".join(f"{name} is as wide as {part} of the row format" for name, part in pairs)
    return Invariant("widths_match_format", "DSA124", pairs[0][0], statement, False, check)


def page_size_is_the_batch_page_size(pool: str) -> Invariant:
    """The pool's pages hold as many slots as the batch's page table means."""

    def check(call: Call) -> str | None:
        got, want = call.tensor(pool).shape[1], call.batch.page_size
        return None if got == want else f"{pool} has pages of {got} slots, the batch has page_size {want}"

    statement = f"page_size of {pool} = page_size of the batch"
    return Invariant("page_size_is_the_batch_page_size", "DSA114", pool, statement, False, check)


def page_table_covers_batch() -> Invariant:
    """The page table is wide enough for the longest request."""

    def check(call: Call) -> str | None:
        pages, size, longest = call.tensor("page_table").shape[1], call.batch.page_size, call.batch.max_seq_len
        if pages * size >= longest:
            return None
        return f"page_table has {pages} columns of {size} slots, the longest request has {longest} keys"

    statement = "page_table columns * page_size >= seq_len of the longest request"
    return Invariant("page_table_covers_batch", "DSA114", "page_table", statement, False, check)


def _first(fault: Tensor) -> int:
    """Return the index of the first true element."""
    return int(fault.nonzero()[0, 0])


def rows_are_this_ranks(rows: str = "rows") -> Invariant:
    """Row indices are the batch's own, padded or not: the same rows, in local order."""

    def check(call: Call) -> str | None:
        got, batch = call.tensor(rows), call.batch
        for want in (batch.local_rows, batch.padded_rows):
            if got.shape == want.shape and bool((got == want).all()):
                return None
        want = batch.local_rows if got.shape == batch.local_rows.shape else batch.padded_rows
        if got.shape != want.shape:
            return f"{rows} has {got.shape[0]} entries"
        at = _first(got != want)
        return f"{rows}[{at}] is {int(got[at])}, local row {at} of this rank is {int(want[at])}"

    statement = f"{rows} is batch.local_rows or batch.padded_rows"
    return Invariant("rows_are_this_ranks", "DSA119", rows, statement, True, check)


def local_values_match_rows(local: str, source: str, code: str, name: str) -> Invariant:
    """A local tensor holds, for each of this rank's rows, the value of that row in the batch; 0 on padding rows."""

    def check(call: Call) -> str | None:
        got, rows = call.tensor(local), _rows_for(call, local)
        if rows is None:
            return f"{local} has {call.tensor(local).shape[0]} rows"
        whole = getattr(call.batch, source)
        want = torch.where(rows >= 0, whole[rows.clamp(min=0)], 0)
        if bool((got == want).all()):
            return None
        at = _first(got != want)
        kind = "padding" if int(rows[at]) < 0 else f"row {int(rows[at])}"
        return f"{local}[{at}] is {int(got[at])}, for {kind} it is {int(want[at])}"

    statement = f"{local}[i] = batch.{source}[row of i], 0 for padding"
    return Invariant(name, code, local, statement, True, check)


def positions_go_with(tensor: str) -> Invariant:
    """Positions are those of the rows that another argument's brand names: this rank's, or all in sequence order."""

    def check(call: Call) -> str | None:
        got, batch = call.tensor("positions"), call.batch
        brand = brand_of(call.tensor(tensor))
        if brand is None:
            return None
        want: Tensor = batch.positions
        if get_origin(brand.kind.rows) is Local:
            rows = _rows_for(call, "positions")
            if rows is None:
                return f"positions has {got.shape[0]} rows"
            want = torch.where(rows >= 0, batch.positions[rows.clamp(min=0)], 0)
        if got.shape == want.shape and bool((got == want).all()):
            return None
        if got.shape != want.shape:
            return f"positions has {got.shape[0]} rows, {tensor} goes by {want.shape[0]}"
        at = _first(got != want)
        return f"positions[{at}] is {int(got[at])}, row {at} of {tensor} is at position {int(want[at])}"

    statement = f"positions[i] is the position of row i of {tensor}"
    return Invariant("positions_go_with_rows", "DSA115", "positions", statement, True, check)


def _rows_for(call: Call, local: str) -> Tensor | None:
    """Return the batch's row indices that a local tensor goes by: without padding rows, or with them."""
    for rows in (call.batch.local_rows, call.batch.padded_rows):
        if rows.shape[0] == call.tensor(local).shape[0]:
            return rows
    return None


def slots_are_legal() -> Invariant:
    """Slots are in the pool and unique; negative only where the row is padding or another copy is the written one."""

    def check(call: Call) -> str | None:
        loc, pool = call.tensor("loc"), call.tensor("pool")
        num_slots = pool.shape[0] * pool.shape[1]
        written = loc[loc >= 0]
        if bool((written >= num_slots).any()):
            at = _first(loc >= num_slots)
            return f"loc[{at}] is {int(loc[at])}, the pool has {num_slots} slots"
        ordered = written.sort().values
        doubled = ordered[1:] == ordered[:-1]
        if bool(doubled.any()):
            return f"slot {int(ordered[_first(doubled)])} is written more than once"
        if written.numel() != call.batch.nnz:
            return f"{written.numel()} slots are written, the batch has {call.batch.nnz} new tokens"
        return _negative_slot_fault(call, loc)

    statement = "each new token has one slot of the pool, unique; negative for padding alone"
    return Invariant("slots_are_legal", "DSA116", "loc", statement, True, check)


def _negative_slot_fault(call: Call, loc: Tensor) -> str | None:
    """Return what is wrong with the signs of slots: padding must be negative, and each row must have one slot."""
    gathered = call.batch.gathered_rows
    if loc.shape != gathered.shape:
        return None
    padding = (gathered < 0) & (loc >= 0)
    if bool(padding.any()):
        return f"loc[{_first(padding)}] is {int(loc[padding][0])}, that gathered row is padding"
    return None


def scales_in_rows_are_positive(rows: str) -> Invariant:
    """float32 scales inside packed rows are finite and positive."""

    def check(call: Call) -> str | None:
        fmt = call.row_format
        if not any(part.name == "scales" for part in fmt.parts):
            return None
        scales = call.tensor(rows)[..., fmt.part("scales").columns].contiguous().view(torch.float32)
        fault = ~(torch.isfinite(scales) & (scales > 0)).all(dim=-1)
        return f"row {_first(fault)} of {rows} has a scale that is not positive" if bool(fault.any()) else None

    statement = f"scales inside {rows} are finite and > 0"
    return Invariant("scales_in_rows_are_positive", "DSA112", rows, statement, True, check)


def topk_is_in_range() -> Invariant:
    """Top-k entries are -1 or below the length of their row."""

    def check(call: Call) -> str | None:
        topk, lens = call.tensor("topk_indices"), call.tensor("causal_lens")
        fault = (topk < -1) | (topk >= lens[:, None])
        if not bool(fault.any()):
            return None
        row, column = (int(value) for value in fault.nonzero()[0])
        return f"topk_indices[{row}, {column}] is {int(topk[row, column])}, row {row} sees {int(lens[row])} keys"

    statement = "each topk_indices entry is -1 or in 0..causal_len-1 of its row"
    return Invariant("topk_is_in_range", "DSA118", "topk_indices", statement, True, check)


def pages_are_in_pool(pool: str) -> Invariant:
    """Pages that the batch's keys lie on are pages of the pool."""

    def check(call: Call) -> str | None:
        table, batch, num_pages = call.tensor("page_table"), call.batch, call.tensor(pool).shape[0]
        for request, seq_len in enumerate(batch.seq_lens):
            used = table[request, : -(-seq_len // batch.page_size)]
            fault = (used < 0) | (used >= num_pages)
            if bool(fault.any()):
                at = _first(fault)
                return f"page_table[{request}, {at}] is {int(used[at])}, {pool} has {num_pages} pages"
        return None

    statement = f"pages of the first seq_len keys of each request are in 0..num_pages-1 of {pool}"
    return Invariant("pages_are_in_pool", "DSA114", "page_table", statement, True, check)


def empty_rows_are_inert() -> Invariant:
    """A row that attends to nothing gives out 0 and lse -inf; no output is NaN for it to spread."""

    def check(call: Call) -> str | None:
        topk, out, lse = call.tensor("topk_indices"), call.tensor("out"), call.tensor("lse")
        empty = (topk < 0).all(dim=1)
        fault = empty & ~((out == 0).flatten(1).all(dim=1) & torch.isneginf(lse).all(dim=1))
        if bool(fault.any()):
            return f"row {_first(fault)} attends to nothing, its out is not 0 or its lse not -inf"
        return None

    statement = "a row whose topk_indices are all -1 has out 0 and lse -inf"
    return Invariant("empty_rows_are_inert", "DSA121", "out", statement, True, check)


def gathered_in_rank_order() -> Invariant:
    """What the group gathers is in the order of the ranks that the batch was cut for: row ids gathered beside the payload."""

    def check(call: Call) -> str | None:
        batch, comm = call.batch, call.values["comm"]
        if not isinstance(comm, Comm):
            return None
        ids = comm.all_gather(batch.padded_rows[:, None].contiguous().view(torch.uint8))
        got = ids.view(torch.int64).flatten()
        if got.shape == batch.gathered_rows.shape and bool((got == batch.gathered_rows).all()):
            return None
        at = _first(got != batch.gathered_rows)
        return f"gathered row {at} is row {int(got[at])} of the batch, in rank order it is {int(batch.gathered_rows[at])}"

    statement = "the group gathers rank 0's rows first, then rank 1's, ..."
    return Invariant("gathered_in_rank_order", "DSA122", "comm", statement, True, check)


def padding_rows_are_zero(rows: str) -> Invariant:
    """Padding rows that come out of the collective are 0, whatever a rank's buffer held."""

    def check(call: Call) -> str | None:
        got, gathered = call.tensor(rows), call.batch.gathered_rows
        fault = (gathered < 0) & (got != 0).flatten(1).any(dim=1) if got.shape[0] == gathered.shape[0] else gathered[:0] < 0
        return f"row {_first(fault)} of {rows} is padding and not 0" if bool(fault.any()) else None

    statement = f"{rows}[i] is 0 where gathered row i is padding"
    return Invariant("padding_rows_are_zero", "DSA120", rows, statement, True, check)
