"""Invariants of metadata and host numbers: looked at once for each signature of a call."""

import math
from collections.abc import Callable

from dsa_contracts.core.invariant import Call, Invariant
from dsa_contracts.dsa.engine_shapes import KvParts
from dsa_contracts.dsa.invariants.reading import batch_of, row_format_of


def row_width_matches_format(rows: str) -> Invariant:
    """Packed rows are as wide as their row format says."""

    def check(call: Call) -> str | None:
        fmt, value = row_format_of(call), call.shown(rows)
        misfit = value.misfit(fmt) if isinstance(value, KvParts) else ""
        if misfit:
            return f"{rows} has {misfit}"
        width = call.width(rows)
        return None if width == fmt.row_bytes else f"{rows} is {width} bytes wide, a row of {fmt.name} has {fmt.row_bytes}"

    return Invariant("row_width_matches_format", "DSA110", rows, f"{rows} rows are row_format.row_bytes wide", False, check)


def table_covers_positions() -> Invariant:
    """The cos/sin table has a row for every position of the batch, on any rank; known without reading the device."""

    def check(call: Call) -> str | None:
        rows, need = call.tensor("cos_sin_cache").shape[0], batch_of(call).max_seq_len
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


def scale_is_one_unless_a_layer_has_one(name: str) -> Invariant:
    """Rows that are not quantised, or carry their own scales, take no scale of the layer, whatever a checkpoint holds."""

    def check(call: Call) -> str | None:
        value = call.number(name)
        if value == 1.0 or row_format_of(call).has_layer_scale:
            return None
        return f"{name} is {value}, and rows of {row_format_of(call).name} have no scale of the layer"

    statement = f"{name}: 1 unless rows have one scale a layer (flat fp8)"
    return Invariant("scale_is_one_unless_a_layer_has_one", "DSA112", name, statement, False, check)


def width_is_argument(tensor: str, argument: str) -> Invariant:
    """The last dim of a tensor is what an argument asks for."""

    def check(call: Call) -> str | None:
        got, want = call.tensor(tensor).shape[-1], int(call.number(argument))
        return None if got == want else f"{tensor} is {got} wide, {argument} is {want}"

    return Invariant("width_is_argument", "DSA124", tensor, f"last dim of {tensor} = {argument}", False, check)


def comm_is_the_batch_group() -> Invariant:
    """The collective's size and rank are those that the batch was cut for."""

    def check(call: Call) -> str | None:
        comm, batch = call.group("comm"), batch_of(call)
        if (comm.size, comm.rank) == (batch.cp_size, batch.cp_rank):
            return None
        return f"comm is rank {comm.rank} of {comm.size}, the batch was cut for rank {batch.cp_rank} of {batch.cp_size}"

    return Invariant("comm_is_the_batch_group", "DSA113", "comm", "comm is the CP group of the batch", False, check)


def widths_add_up(total: str, *parts: str) -> Invariant:
    """The last dim of `total` is the sum of the last dims of its parts."""

    def check(call: Call) -> str | None:
        want = sum(call.width(part) for part in parts)
        got = call.width(total)
        return None if got == want else f"{total} is {got} wide, {' + '.join(parts)} are {want}"

    statement = f"last dim of {total} = last dims of {' + '.join(parts)}"
    return Invariant("widths_add_up", "DSA124", total, statement, False, check)


def widths_match_format(*pairs: tuple[str, str]) -> Invariant:
    """A tensor's last dim is the number of elements of the part of the row format that it fills or comes from."""

    def check(call: Call) -> str | None:
        for name, part in pairs:
            got, want = call.tensor(name).shape[-1], row_format_of(call).part(part).count
            if got != want:
                return f"{name} is {got} wide, {part} of {row_format_of(call).name} has {want} elements"
        return None

    statement = ", ".join(f"{name} is as wide as {part} of the row format" for name, part in pairs)
    return Invariant("widths_match_format", "DSA124", pairs[0][0], statement, False, check)


def page_size_is_the_batch_page_size(pool: str) -> Invariant:
    """The pool's pages hold as many slots as the batch's page table means."""

    def check(call: Call) -> str | None:
        got, want = call.tensor(pool).shape[1], batch_of(call).page_size
        return None if got == want else f"{pool} has pages of {got} slots, the batch has page_size {want}"

    statement = f"page_size of {pool} = page_size of the batch"
    return Invariant("page_size_is_the_batch_page_size", "DSA114", pool, statement, False, check)


def page_table_covers_batch() -> Invariant:
    """The page table is wide enough for the longest request."""

    def check(call: Call) -> str | None:
        pages, size, longest = call.tensor("page_table").shape[1], batch_of(call).page_size, batch_of(call).max_seq_len
        if pages * size >= longest:
            return None
        return f"page_table has {pages} columns of {size} slots, the longest request has {longest} keys"

    statement = "page_table columns * page_size >= seq_len of the longest request"
    return Invariant("page_table_covers_batch", "DSA114", "page_table", statement, False, check)
