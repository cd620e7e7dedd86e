"""What ranks say of an exchange before its rows move, and whether what they say fits together.

In a gather all ranks say the same. In an exchange each has its own counts, so that the texts differ and are read again
here: what a rank sends to another is what that one takes from it. A text that a board has cut, of thousands of ranks, is
not compared.
"""

import re
from collections.abc import Sequence

from torch import Tensor

HEAD = "all_to_all "
_TEXT = re.compile(rf"{HEAD}(\w+)\[\d+, (\d+)\] sends ([\d, ]*) takes ([\d, ]*)")


def exchange_text(rows: Tensor, send: Sequence[int], take: Sequence[int]) -> str:
    """Return what a rank says of its part: dtype and shape of its rows, and its counts."""
    text = f"{HEAD}{str(rows.dtype).removeprefix('torch.')}{list(rows.shape)}"
    return f"{text} sends {', '.join(map(str, send))} takes {', '.join(map(str, take))}"


def counts_fault(size: int, rows: int, send: Sequence[int], take: Sequence[int]) -> str | None:
    """Return what is wrong with the counts of one rank, None where they can be those of an exchange."""
    for verb, counts in (("send", send), ("take", take)):
        if len(counts) != size:
            return f"{verb} has {len(counts)} counts, and the group {size} ranks"
        if any(count < 0 for count in counts):
            return f"{verb} is {list(counts)}; a count is not below 0"
    if sum(send) != rows:
        return f"send is {list(send)}, {sum(send)} rows, and {rows} rows were given"
    return None


def difference(texts: Sequence[str]) -> str | None:
    """Return how what the ranks of a round say differs, in words; None where it fits together.

    Args:
        texts: of the ranks that have come, in rank order; counts are compared once all have.
    """
    if not any(text.startswith(HEAD) for text in texts):
        return "different facts" if len(set(texts)) > 1 else None
    if not all(text.startswith(HEAD) for text in texts):
        return "different facts"
    found = [match.groups() for match in map(_TEXT.fullmatch, texts) if match is not None]
    if len({(dtype, width) for dtype, width, _, _ in found}) > 1:
        return "different facts"
    sent, taken = [_counts(send) for _, _, send, _ in found], [_counts(take) for _, _, _, take in found]
    if any(len(counts) != len(texts) for counts in (*sent, *taken)) or len(found) < len(texts):
        return None
    for rank, counts in enumerate(sent):
        for peer, count in enumerate(counts):
            if taken[peer][rank] != count:
                return (
                    f"counts that do not fit: rank {rank} sends {count} rows to rank {peer}, which takes {taken[peer][rank]}"
                )
    return None


def _counts(text: str) -> list[int]:
    return [int(count) for count in text.split(", ")]
