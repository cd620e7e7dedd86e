"""What the ranks of a group bring to one round of the control plane, and the one error that all of them read from it.

A verdict is a pure function of the entries of a round. Entries are written once, so that every rank reads the same ones
and makes the same text, whether it failed itself, waited, or came too late.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import torch
from torch import Tensor

from dsa_contracts.core.comm import describe_values
from dsa_contracts.core.errors import RankError
from dsa_cp.comm.exchange import counts_fault, difference, exchange_text


class Kind(Enum):
    """How a rank came to a round."""

    CAME = "came"
    REFUSED = "refused"
    FAILED = "failed"
    DIED = "died"
    ENDED = "ended"
    ABSENT = "absent"
    LOST = "lost"


class Entry(NamedTuple):
    """What one rank brings to one round: how it came, and its fingerprint, payload or reason."""

    kind: Kind
    text: str = ""


# The first kind that stands in a round names the fault. A difference between values comes before ABSENT: a round that
# cannot succeed is closed early, so a rank that is missing from it was not given its whole time.
_BEFORE_VALUES = (
    (Kind.DIED, "DSA502", "{ranks} died before collective {number}"),
    (Kind.FAILED, "DSA502", "{ranks} failed before collective {number}"),
    (Kind.REFUSED, "DSA501", "{ranks} came to collective {number} with rows that are not contiguous uint8 [n, width]"),
    (Kind.ENDED, "DSA502", "{ranks} ended before collective {number}"),
)
_AFTER_VALUES = (
    (Kind.ABSENT, "DSA503", "{ranks} did not come to collective {number} within {timeout_s:g} s"),
    (Kind.LOST, "DSA502", "{ranks} lost the payload before collective {number}"),
)


def decide(number: int, entries: Sequence[Entry], timeout_s: float) -> RankError | None:
    """Return a new error that names every rank's entry, or None where all ranks came with the same value.

    Args:
        number: the round, from 0; messages count from 1.
        entries: what each rank brought, in rank order.
        timeout_s: what a rank that did not come was given.
    """
    fault = _fault(entries)
    if fault is None:
        return None
    kind, code, pattern = fault
    guilty = [rank for rank, entry in enumerate(entries) if entry.kind is kind]
    ranks = f"rank{'s' * (len(guilty) > 1)} {', '.join(map(str, guilty))} of {len(entries)}"
    headline = pattern.format(ranks=ranks, number=number + 1, timeout_s=timeout_s)
    return describe_values(headline, dict(enumerate(_texts(entries))), code)


def can_succeed(entries: Sequence[Entry | None]) -> bool:
    """Whether a round may still end well, as far as the entries that stand (None: open) tell."""
    standing = [entry for entry in entries if entry is not None]
    return _fault([entry for entry in standing if entry.kind is not Kind.LOST]) is None


def payload_entry(rows: Tensor) -> Entry:
    """Return what a rank that gathers `rows` brings: its dtype and shape, refused unless contiguous uint8 [n, width]."""
    return _entry(rows, f"all_gather {str(rows.dtype).removeprefix('torch.')}{list(rows.shape)}")


def exchange_entry(size: int, rows: Tensor, send: Sequence[int], take: Sequence[int]) -> Entry:
    """Return what a rank that exchanges `rows` brings: dtype, shape and counts, refused as for a gather.

    A rank whose counts cannot be right brings that as its failure, so that the others learn of it and do not wait.
    """
    fault = counts_fault(size, len(rows), send, take)
    if fault is not None:
        return Entry(Kind.FAILED, f"ArgumentError DSA602: all_to_all: {fault}")
    return _entry(rows, exchange_text(rows, send, take))


def _entry(rows: Tensor, text: str) -> Entry:
    """Return the entry of a rank that brings rows, refused unless they are contiguous uint8 [n, width]."""
    if not rows.is_contiguous():
        text += f" strides {rows.stride()}"
    is_legal = rows.dtype is torch.uint8 and rows.dim() == 2 and rows.is_contiguous()
    return Entry(Kind.CAME if is_legal else Kind.REFUSED, text)


def _fault(entries: Sequence[Entry]) -> tuple[Kind, str, str] | None:
    """Return the kind, code and headline of what is wrong with a round, None where nothing is."""
    kinds = {entry.kind for entry in entries}
    for fault in _BEFORE_VALUES:
        if fault[0] in kinds:
            return fault
    differs = difference([entry.text for entry in entries if entry.kind is Kind.CAME])
    if differs is not None:
        return Kind.CAME, "DSA501", f"{{ranks}} came to collective {{number}} with {differs}"
    return next((fault for fault in _AFTER_VALUES if fault[0] in kinds), None)


def _texts(entries: Sequence[Entry]) -> list[str]:
    """Return one text a rank; a reason that an earlier rank has given is not repeated."""
    first: dict[Entry, int] = {}
    return [_text(entry, rank, first.setdefault(entry, rank)) for rank, entry in enumerate(entries)]


def _text(entry: Entry, rank: int, same_as: int) -> str:
    """Return the text of one entry, its further lines indented below the label of its rank."""
    if entry.kind in (Kind.CAME, Kind.REFUSED):
        return _indented(entry.text) or "''"
    if entry.kind is Kind.ENDED:
        return "ended"
    if entry.kind is Kind.ABSENT:
        return "did not come"
    if same_as < rank:
        return f"{entry.kind.value}, as rank {same_as}"
    return f"{entry.kind.value}: {_indented(entry.text)}"


def _indented(text: str) -> str:
    return text.replace("\n", "\n" + " " * 12)
