"""Invariants that read what tensors hold: scales in rows, top-k entries, pages, outputs, gathered rows."""

import torch

from dsa_contracts.core.invariant import Call, Invariant, first
from dsa_contracts.dsa.invariants.pages import used_pages
from dsa_contracts.dsa.invariants.reading import batch_of, row_format_of


def scales_in_rows_are_positive(rows: str) -> Invariant:
    """Scales inside packed rows are finite and positive; padding rows may hold anything."""

    def check(call: Call) -> str | None:
        part = row_format_of(call).scale_part
        if part is None:
            return None
        scales = call.tensor(rows)[..., part.columns].contiguous().view(part.dtype.torch_dtype).float()
        fault = ~(torch.isfinite(scales) & (scales > 0)).all(dim=-1)
        for indices in (batch_of(call).padded_rows, batch_of(call).gathered_rows):
            if fault.shape == indices.shape:
                fault &= indices >= 0
        return f"row {first(fault)} of {rows} has a scale that is not positive" if bool(fault.any()) else None

    statement = f"scales inside {rows} are finite and > 0, but for padding rows"
    return Invariant("scales_in_rows_are_positive", "DSA112", rows, statement, True, check)


def topk_is_in_range() -> Invariant:
    """Top-k entries are -1 or below the length of their row, and none but -1 stands twice in a row."""

    def check(call: Call) -> str | None:
        topk, lens = call.tensor("topk_indices"), call.tensor("causal_lens")
        fault = (topk < -1) | (topk >= lens[:, None])
        if bool(fault.any()):
            row, column = (int(value) for value in fault.nonzero()[0])
            return f"topk_indices[{row}, {column}] is {int(topk[row, column])}, row {row} sees {int(lens[row])} keys"
        ordered = topk.sort(dim=1).values
        doubled = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
        if not bool(doubled.any()):
            return None
        row, column = (int(value) for value in doubled.nonzero()[0])
        return f"row {row} of topk_indices names key {int(ordered[row, column])} more than once"

    statement = "each topk_indices entry is -1 or in 0..causal_len-1 of its row, and distinct"
    return Invariant("topk_is_in_range", "DSA118", "topk_indices", statement, True, check)


def pages_are_in_pool(pool: str) -> Invariant:
    """Pages that the batch's keys lie on are pages of the pool."""

    def check(call: Call) -> str | None:
        table, batch, num_pages = call.tensor("page_table"), batch_of(call), call.tensor(pool).shape[0]
        for request, used in enumerate(used_pages(table, batch)):
            fault = (used < 0) | (used >= num_pages)
            if bool(fault.any()):
                at = first(fault)
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
            return f"row {first(fault)} attends to nothing, its out is not 0 or its lse not -inf"
        return None

    statement = "a row whose topk_indices are all -1 has out 0 and lse -inf"
    return Invariant("empty_rows_are_inert", "DSA121", "out", statement, True, check)


def gathered_in_rank_order() -> Invariant:
    """What the group gathers is in the order of the ranks that the batch was cut for: row ids gathered beside the payload."""

    def check(call: Call) -> str | None:
        batch, comm = batch_of(call), call.group("comm")
        ids = comm.all_gather(batch.padded_rows[:, None].contiguous().view(torch.uint8))
        got = ids.view(torch.int64).flatten()
        if got.shape == batch.gathered_rows.shape and bool((got == batch.gathered_rows).all()):
            return None
        at = first(got != batch.gathered_rows)
        return f"gathered row {at} is row {int(got[at])} of the batch, in rank order it is {int(batch.gathered_rows[at])}"

    statement = "the group gathers rank 0's rows first, then rank 1's, ..."
    return Invariant("gathered_in_rank_order", "DSA122", "comm", statement, True, check)


def padding_rows_are_zero(rows: str) -> Invariant:
    """Padding rows that come out of the collective are 0, whatever a rank's buffer held."""

    def check(call: Call) -> str | None:
        got, gathered = call.tensor(rows), batch_of(call).gathered_rows
        fault = (gathered < 0) & (got != 0).flatten(1).any(dim=1) if got.shape[0] == gathered.shape[0] else gathered[:0] < 0
        return f"row {first(fault)} of {rows} is padding and not 0" if bool(fault.any()) else None

    statement = f"{rows}[i] is 0 where gathered row i is padding"
    return Invariant("padding_rows_are_zero", "DSA120", rows, statement, True, check)
