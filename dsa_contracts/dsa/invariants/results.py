"""Invariants of what a stage has done: rows where they belong, a choice that is full."""

import torch

from dsa_contracts.core.invariant import Call, Invariant, differing_row, first
from dsa_contracts.dsa.invariants.reading import batch_of
from dsa_contracts.dsa.slots import is_written


def rows_are_restored() -> Invariant:
    """Restored rows are the gathered ones in sequence order."""

    def check(call: Call) -> str | None:
        index = batch_of(call).restore_index
        at = differing_row(call.tensor("restored"), call.tensor("gathered")[index])
        return None if at is None else f"restored row {at} is not gathered row {int(index[at])}"

    statement = "restored[i] is gathered[batch.restore_index[i]]"
    return Invariant("rows_are_restored", "DSA119", "restored", statement, True, check)


def rows_stand_in_their_slots() -> Invariant:
    """After the write each row stands in its slot."""

    def check(call: Call) -> str | None:
        pool, kv, loc = call.tensor("pool"), call.tensor("kv"), call.tensor("loc")
        at = is_written(loc, batch_of(call).slot_skip).nonzero().flatten()
        wrong = differing_row(pool.view(-1, pool.shape[-1])[loc[at]], kv[at])
        if wrong is None:
            return None
        row = int(at[wrong])
        return f"slot {int(loc[row])} of pool does not hold row {row} of kv"

    statement = "pool[loc[i]] is kv[i] where the writer does not pass over loc[i]"
    return Invariant("rows_stand_in_their_slots", "DSA116", "pool", statement, True, check)


def own_rows_stand_in_their_place() -> Invariant:
    """Of the gathered rows this rank's own are where the order of the ranks puts them."""

    def check(call: Call) -> str | None:
        batch, kv = batch_of(call), call.tensor("kv")
        own = kv if kv.shape[0] == batch.nnz_local else kv[batch.padded_index]
        place = batch.cp_rank * batch.nnz_padded + batch.padded_index
        at = differing_row(call.tensor("gathered")[place], own)
        return None if at is None else f"gathered row {int(place[at])} is not row {at} of this rank"

    statement = "gathered[cp_rank * nnz_padded + padded_index] is this rank's kv"
    return Invariant("own_rows_stand_in_their_place", "DSA122", "gathered", statement, True, check)


def choice_is_full() -> Invariant:
    """Each row names as many keys as it may, rising, and -1 behind them."""

    def check(call: Call) -> str | None:
        topk, lens = call.tensor("topk_indices"), call.tensor("causal_lens")
        named, want = (topk >= 0).sum(dim=1), lens.clamp(max=topk.shape[1])
        if bool((named != want).any()):
            row = first(named != want)
            sees = f"it sees {int(lens[row])} and may name {topk.shape[1]}"
            return f"row {row} of topk_indices names {int(named[row])} keys, {sees}"
        rising = torch.where(topk < 0, torch.iinfo(torch.int32).max, topk)
        fault = (rising[:, 1:] < rising[:, :-1]).any(dim=1)
        return f"row {first(fault)} of topk_indices does not rise" if bool(fault.any()) else None

    statement = "each row names min(causal_len, index_topk) keys, rising; -1 fills the rest"
    return Invariant("choice_is_full", "DSA118", "topk_indices", statement, True, check)
