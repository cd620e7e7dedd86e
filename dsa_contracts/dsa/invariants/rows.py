"""Invariants that read index tensors: rows, positions, lengths, slots."""

from typing import get_origin

import torch
from torch import Tensor

from dsa_contracts.core.brands import brand_of
from dsa_contracts.core.invariant import Call, Invariant, first
from dsa_contracts.core.marks import mark_text
from dsa_contracts.dsa.invariants.reading import batch_of
from dsa_contracts.dsa.states import Local


def rows_are_this_ranks(rows: str = "rows") -> Invariant:
    """Row indices are the batch's own, padded or not: the same rows, in local order."""

    def check(call: Call) -> str | None:
        got, batch = call.tensor(rows), batch_of(call)
        for want in (batch.local_rows, batch.padded_rows):
            if got.shape == want.shape and bool((got == want).all()):
                return None
        want = batch.local_rows if got.shape == batch.local_rows.shape else batch.padded_rows
        if got.shape != want.shape:
            return f"{rows} has {got.shape[0]} entries"
        at = first(got != want)
        return f"{rows}[{at}] is {int(got[at])}, local row {at} of this rank is {int(want[at])}"

    statement = f"{rows} is batch.local_rows or batch.padded_rows"
    return Invariant("rows_are_this_ranks", "DSA119", rows, statement, True, check, shows_rows=True)


def local_values_match_rows(local: str, source: str, code: str, name: str) -> Invariant:
    """A local tensor holds, for each of this rank's rows, the value of that row in the batch; 0 on padding rows."""

    def check(call: Call) -> str | None:
        got, rows = call.tensor(local), _rows_for(call, local)
        if rows is None:
            return f"{local} has {call.tensor(local).shape[0]} rows"
        whole = getattr(batch_of(call), source)
        want = _values_of(rows, whole)
        if bool((got == want).all()):
            return None
        at = first(got != want)
        kind = "padding" if int(rows[at]) < 0 else f"row {int(rows[at])}"
        return f"{local}[{at}] is {int(got[at])}, for {kind} it is {int(want[at])}"

    statement = f"{local}[i] = batch.{source}[row of i], 0 for padding"
    return Invariant(name, code, local, statement, True, check, shows_rows=True)


def positions_go_with(tensor: str) -> Invariant:
    """Positions are those of the rows that another argument's brand names: this rank's, or all, in one order or the other."""

    def check(call: Call) -> str | None:
        got, batch = call.tensor("positions"), batch_of(call)
        brand = brand_of(call.tensor(tensor))
        if brand is None:
            return None
        want: Tensor = batch.positions
        if get_origin(brand.kind.rows) is Local:
            rows = _rows_for(call, "positions")
            if rows is None:
                return f"positions has {got.shape[0]} rows"
            want = _values_of(rows, batch.positions)
        elif "RankMajor" in mark_text(brand.kind.rows):
            want = _values_of(batch.gathered_rows, batch.positions)
        if got.shape == want.shape and bool((got == want).all()):
            return None
        if got.shape != want.shape:
            return f"positions has {got.shape[0]} rows, {tensor} goes by {want.shape[0]}"
        at = first(got != want)
        return f"positions[{at}] is {int(got[at])}, row {at} of {tensor} is at position {int(want[at])}"

    statement = f"positions[i] is the position of row i of {tensor}"
    return Invariant("positions_go_with_rows", "DSA115", "positions", statement, True, check, shows_rows=True)


def _values_of(rows: Tensor, whole: Tensor) -> Tensor:
    """Return what a local tensor must hold: the value of each of its rows, 0 for padding. Not the code that is checked."""
    return torch.where(rows >= 0, whole[rows.clamp(min=0)], 0)


def _rows_for(call: Call, local: str) -> Tensor | None:
    """Return the batch's row indices that a local tensor goes by: without padding rows, or with them."""
    for rows in (batch_of(call).local_rows, batch_of(call).padded_rows):
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
            at = first(loc >= num_slots)
            return f"loc[{at}] is {int(loc[at])}, the pool has {num_slots} slots"
        ordered = written.sort().values
        doubled = ordered[1:] == ordered[:-1]
        if bool(doubled.any()):
            return f"slot {int(ordered[first(doubled)])} is written more than once"
        if written.numel() != batch_of(call).nnz:
            return f"{written.numel()} slots are written, the batch has {batch_of(call).nnz} new tokens"
        return _negative_slot_fault(call, loc)

    statement = "each new token has one slot of the pool, unique; negative for padding alone"
    return Invariant("slots_are_legal", "DSA116", "loc", statement, True, check)


def _negative_slot_fault(call: Call, loc: Tensor) -> str | None:
    """Return what is wrong with the signs of slots: padding must be negative, and each row must have one slot."""
    gathered = batch_of(call).gathered_rows
    if loc.shape != gathered.shape:
        return None
    padding = (gathered < 0) & (loc >= 0)
    if bool(padding.any()):
        return f"loc[{first(padding)}] is {int(loc[padding][0])}, that gathered row is padding"
    rows = gathered[loc >= 0].sort().values
    lost = rows != torch.arange(rows.shape[0], device=rows.device)
    if not bool(lost.any()):
        return None
    at = first(lost)
    return f"row {at} of the batch has no slot" if int(rows[at]) > at else f"row {int(rows[at])} of the batch has two slots"


def _is_rank_major(call: Call, loc: Tensor) -> bool | None:
    """Whether slots are in rank-major order: by their size, by their brand, else by the rows they go with. None: unknown."""
    batch = batch_of(call)
    if batch.nnz != batch.nnz_gathered:
        return loc.shape == batch.gathered_rows.shape
    for tensor in (loc, call.tensor("kv")):
        brand = brand_of(tensor)
        if brand is not None and brand.kind.rows is not None:
            # Local rows are gathered by the stage itself, and then stand in rank-major order.
            return get_origin(brand.kind.rows) is Local or "RankMajor" in mark_text(brand.kind.rows)
    return None


def slots_are_on_their_pages() -> Invariant:
    """The slot of a new token is the batch's own, and the one that the page table gives its position."""

    def check(call: Call) -> str | None:
        loc, batch = call.tensor("loc"), batch_of(call)
        is_gathered = _is_rank_major(call, loc)
        if is_gathered is None:
            return None
        at = (loc >= 0).nonzero().flatten()
        rows = batch.gathered_rows[at] if is_gathered else at
        fault = _page_fault(call, loc[at], rows)
        if fault is None and batch.out_cache_loc is not None and bool((loc[at] != batch.out_cache_loc[rows]).any()):
            wrong = first(loc[at] != batch.out_cache_loc[rows])
            fault = wrong, f"out_cache_loc gives row {int(rows[wrong])} slot {int(batch.out_cache_loc[rows[wrong]])}"
        if fault is None:
            return None
        wrong, says = fault
        return f"loc[{int(at[wrong])}] is {int(loc[at[wrong]])}, {says}"

    statement = "loc[i] = out_cache_loc[row] = page_table[request][position // page_size] * page_size + position % page_size"
    return Invariant("slots_are_on_their_pages", "DSA116", "loc", statement, True, check, shows_rows=True)


def _page_fault(call: Call, slots: Tensor, rows: Tensor) -> tuple[int, str] | None:
    """Return the first slot that is not where the page table puts its row, and where that is."""
    batch = batch_of(call)
    if batch.page_table is None:
        return None
    positions = batch.positions[rows]
    pages = batch.page_table[batch.request_of_row[rows].long(), positions // batch.page_size].long()
    fault = slots != pages * batch.page_size + positions % batch.page_size
    if not bool(fault.any()):
        return None
    wrong = first(fault)
    slot = int(pages[wrong] * batch.page_size + positions[wrong] % batch.page_size)
    return wrong, f"the page table gives row {int(rows[wrong])} slot {slot}"
