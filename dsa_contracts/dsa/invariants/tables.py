"""Invariants that read the tables of a batch: pages, cosines and sines."""

import torch

from dsa_contracts.core.invariant import Call, Invariant, first
from dsa_contracts.dsa.invariants.pages import used_pages
from dsa_contracts.dsa.invariants.reading import batch_of

TOLERANCE = 1e-3
"""How far cos^2 + sin^2 may be from its value at position 0, as a part of it."""


def page_table_is_the_batchs() -> Invariant:
    """The page table is that of the batch, in the order of its requests; columns behind a request's last page are free."""

    def check(call: Call) -> str | None:
        got, batch = call.tensor("page_table"), batch_of(call)
        if batch.page_table is None:
            return None
        for request, (used, own) in enumerate(zip(used_pages(got, batch), used_pages(batch.page_table, batch), strict=True)):
            fault = used != own
            if bool(fault.any()):
                at = first(fault)
                return f"page_table[{request}, {at}] is {int(used[at])}, the batch has page {int(own[at])}"
        return None

    statement = "page_table[request] is batch.page_table[request] for the first seq_len keys"
    return Invariant("page_table_is_the_batchs", "DSA114", "page_table", statement, True, check)


def pages_have_one_writer() -> Invariant:
    """A page that holds new tokens belongs to one request; prefix pages may be shared. No page stands twice in a request."""

    def check(call: Call) -> str | None:
        table, batch = call.tensor("page_table"), batch_of(call)
        owner: dict[int, int] = {}
        pages_of = [used.tolist() for used in used_pages(table, batch)]
        for request, pages in enumerate(pages_of):
            if len(set(pages)) < len(pages):
                twice = next(page for page in pages if pages.count(page) > 1)
                return f"page {twice} stands twice in request {request}"
            if batch.extend_lens[request]:
                owner |= dict.fromkeys(pages[batch.prefix_lens[request] // batch.page_size :], request)
        for request, pages in enumerate(pages_of):
            for page in pages:
                if owner.get(page, request) != request:
                    return f"page {page} of request {request} is one that request {owner[page]} writes new tokens to"
        return None

    statement = "pages of a request are distinct, and those with new tokens are no other request's"
    return Invariant("pages_have_one_writer", "DSA114", "page_table", statement, True, check)


def table_is_cosines_then_sines() -> Invariant:
    """Row p of the cos/sin table is position p: at 0 the sines are 0, and cos^2 + sin^2 is one value throughout."""

    def check(call: Call) -> str | None:
        table = call.tensor("cos_sin_cache")[: max(batch_of(call).max_seq_len, 1)].double()
        half = table.shape[1] // 2
        cosines, sines = table[:, :half], table[:, half:]
        if not bool(torch.isfinite(table).all()):
            return f"row {first(~torch.isfinite(table).all(dim=1))} of cos_sin_cache is not finite"
        scale = float(cosines[0].max())
        if scale <= 0 or bool(((cosines[0] - scale).abs() > TOLERANCE * scale).any()):
            return "row 0 of cos_sin_cache does not begin with the cosines of position 0, all alike and above 0"
        if bool((sines[0].abs() > TOLERANCE * scale).any()):
            return "row 0 of cos_sin_cache does not end with the sines of position 0, all 0"
        fault = ((cosines**2 + sines**2 - scale**2).abs() > 2 * TOLERANCE * scale**2).any(dim=1)
        return (
            f"row {first(fault)} of cos_sin_cache holds no cosines and sines of one angle each" if bool(fault.any()) else None
        )

    statement = "cos_sin_cache[p] is the cosines, then the sines, of position p"
    return Invariant("table_is_cosines_then_sines", "DSA111", "cos_sin_cache", statement, True, check)
