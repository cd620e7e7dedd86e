"""Invariants that read index tensors: rows, positions, lengths, slots."""

from typing import get_origin

import torch
from torch import Tensor

from dsa_contracts.core.brands import brand_of
from dsa_contracts.core.invariant import Call, Invariant, first
from dsa_contracts.core.marks import mark_text
from dsa_contracts.dsa.invariants.reading import batch_of
from dsa_contracts.dsa.slots import is_written
from dsa_contracts.dsa.states import Local


def rows_are_this_ranks(rows: str = "rows") -> Invariant:
    """Row indices are the batch's own, padded or not, or as an engine pads them: the same rows, in local order."""

    def check(call: Call) -> str | None:
        got, batch = call.tensor(rows), batch_of(call)
        legal = [batch.local_rows, batch.padded_rows, batch.shard_rows]
        same = [want for want in legal if want.shape == got.shape]
        if not same:
            return f"{rows} has {got.shape[0]} entries"
        if any(bool((got == want).all()) for want in same):
            return None
        want = same[0]
        at = first(got != want)
        return f"{rows}[{at}] is {int(got[at])}, local row {at} of this rank is {int(want[at])}"

    statement = f"{rows} is batch.local_rows or batch.padded_rows"
    return Invariant("rows_are_this_ranks", "DSA119", rows, statement, True, check, shows_rows=True)


def local_values_match_rows(local: str, source: str, code: str, name: str) -> Invariant:
    """A local tensor holds, for each of this rank's rows, the value of that row in the batch; 0 on padding rows.

    Where the batch says that its padding rows are ignored, they may hold anything.
    """

    def check(call: Call) -> str | None:
        got, rows = call.tensor(local), _rows_for(call, local)
        if rows is None:
            return f"{local} has {call.tensor(local).shape[0]} rows"
        whole = getattr(batch_of(call), source)
        want = _values_of(rows, whole)
        fault = (got != want) & _is_looked_at(call, rows)
        if not bool(fault.any()):
            return None
        at = first(fault)
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
        rows: Tensor | None = torch.arange(batch.nnz, device=batch.positions.device)
        if get_origin(brand.kind.rows) is Local:
            rows = _rows_for(call, "positions")
        elif "RankMajor" in mark_text(brand.kind.rows):
            rows = batch.gathered_rows
        elif got.shape[0] == batch.nnz_engine:
            rows = batch.engine_rows
        if rows is None:
            return f"positions has {got.shape[0]} rows"
        if got.shape != rows.shape:
            return f"positions has {got.shape[0]} rows, {tensor} goes by {rows.shape[0]}"
        want = _values_of(rows, batch.positions)
        fault = (got != want) & _is_looked_at(call, rows)
        if not bool(fault.any()):
            return None
        at = first(fault)
        return f"positions[{at}] is {int(got[at])}, row {at} of {tensor} is at position {int(want[at])}"

    statement = f"positions[i] is the position of row i of {tensor}"
    return Invariant("positions_go_with_rows", "DSA115", "positions", statement, True, check, shows_rows=True)


def _values_of(rows: Tensor, whole: Tensor) -> Tensor:
    """Return what a local tensor must hold: the value of each of its rows, 0 for padding. Not the code that is checked."""
    return torch.where(rows >= 0, whole[rows.clamp(min=0)], 0)


def _rows_for(call: Call, local: str) -> Tensor | None:
    """Return the batch's row indices that a local tensor goes by: without padding rows, or with them."""
    batch = batch_of(call)
    for rows in (batch.local_rows, batch.padded_rows, batch.shard_rows):
        if rows.shape[0] == call.tensor(local).shape[0]:
            return rows
    return None


def _is_looked_at(call: Call, rows: Tensor) -> Tensor:
    """Return which rows are compared: all, or all but padding where the batch says that nobody reads that."""
    return rows >= 0 if batch_of(call).padding == "ignored" else torch.ones_like(rows, dtype=torch.bool)


def slots_are_legal() -> Invariant:
    """Slots are in the pool and unique, one for each row that this pool holds; others have what the writer passes over."""

    def check(call: Call) -> str | None:
        loc, pool, batch = call.tensor("loc"), call.tensor("pool"), batch_of(call)
        num_slots = pool.shape[0] * pool.shape[1]
        is_slot = is_written(loc, batch.slot_skip)
        if bool((loc >= num_slots).any()):
            at = first(loc >= num_slots)
            return f"loc[{at}] is {int(loc[at])}, the pool has {num_slots} slots"
        if batch.slot_skip >= 0 and bool((loc < 0).any()):
            at = first(loc < 0)
            return f"loc[{at}] is {int(loc[at])}, the writer skips slot {batch.slot_skip} and takes it as an address"
        ordered = loc[is_slot].sort().values
        doubled = ordered[1:] == ordered[:-1]
        if bool(doubled.any()):
            return f"slot {int(ordered[first(doubled)])} is written more than once"
        written = ordered.numel()
        held = batch.nnz if batch.owned is None else int(batch.owned.sum())
        if written != held:
            what = "the batch has" if batch.owned is None else "this rank's pool holds"
            return f"{written} slots are written, {what} {held} new tokens"
        return _fault_of_rows(call, is_slot)

    statement = "each new token that the pool holds has one slot of it, unique; padding has none"
    return Invariant("slots_are_legal", "DSA116", "loc", statement, True, check)


def _fault_of_rows(call: Call, is_slot: Tensor) -> str | None:
    """Return which row has a slot and must not, or has none and must; None too where nothing tells whose slots these are."""
    batch, rows = batch_of(call), _rows_of_slots(call)
    if rows is None:
        return None
    padding = (rows < 0) & is_slot
    if bool(padding.any()):
        kind = "gathered row" if rows is batch.gathered_rows else "row of the engine"
        return f"loc[{first(padding)}] is {int(call.tensor('loc')[padding][0])}, that {kind} is padding"
    copies = torch.bincount(rows[is_slot], minlength=batch.nnz)
    held = torch.ones_like(copies) if batch.owned is None else batch.owned.to(copies.dtype)
    wrong = copies != held
    if not bool(wrong.any()):
        return None
    at = first(wrong)
    if int(held[at]) == 0:
        return f"row {at} of the batch has a slot, and another rank's pool holds it"
    return f"row {at} of the batch has {'no slot' if int(copies[at]) == 0 else 'two slots'}"


def _rows_of_slots(call: Call) -> Tensor | None:
    """Return the row that each slot goes with: by their number, by their brand, else by the rows they go with. None: unknown.

    Where every order that has their number is the same there is nothing to tell.
    """
    batch, loc = batch_of(call), call.tensor("loc")
    every = torch.arange(batch.nnz, device=loc.device)
    legal = {"RankMajor": batch.gathered_rows, "EngineOrder": batch.engine_rows, "Sequence": every}
    legal = {order: rows for order, rows in legal.items() if rows.shape == loc.shape}
    if all(torch.equal(rows, next(iter(legal.values()))) for rows in legal.values()):
        return next(iter(legal.values()), None)
    for tensor in (loc, call.values.get("kv")):
        brand = brand_of(tensor) if isinstance(tensor, Tensor) else None
        if brand is None or brand.kind.rows is None:
            continue
        # Local rows are gathered by the stage itself, and then stand in rank-major order.
        text = "RankMajor" if get_origin(brand.kind.rows) is Local else mark_text(brand.kind.rows)
        for order, rows in legal.items():
            if order in text:
                return rows
        # Rows in sequence order with an engine's padding stand where the engine carries them.
        return legal.get("EngineOrder")
    return None


def slots_are_on_their_pages() -> Invariant:
    """The slot of a new token is the batch's own, and the one that the page table gives its position."""

    def check(call: Call) -> str | None:
        loc, batch = call.tensor("loc"), batch_of(call)
        rows_of_slots = _rows_of_slots(call)
        if rows_of_slots is None:
            return None
        at = is_written(loc, batch.slot_skip).nonzero().flatten()
        rows = rows_of_slots[at]
        # A pool that holds some of the rows has slots of its own, which positions do not count.
        fault = _page_fault(call, loc[at], rows) if batch.owned is None else None
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
