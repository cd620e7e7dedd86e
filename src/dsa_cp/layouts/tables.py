"""What every layout does before and after its own arithmetic: check lengths and flags, drop empty segments."""

from collections.abc import Sequence

import torch
from torch import Tensor

from dsa_contracts.dsa.codes import BatchError
from dsa_contracts.dsa.layout import SegmentTable
from dsa_cp.layouts.checks import check_group, checked_lens


def lens_tensor(padded_lens: Sequence[int], cp_size: int) -> Tensor:
    """Return the lengths that a layout cuts as int64 on the CPU; raises BatchError DSA301 or DSA302."""
    check_group(cp_size)
    return torch.tensor(checked_lens("padded_lens", padded_lens, least=1), dtype=torch.int64)


def segment_table(request: Tensor, start: Tensor, stop: Tensor, written: Tensor | None = None) -> SegmentTable:
    """Return one rank's table without its empty segments, in the order given.

    Args:
        request: int64, request of each segment.
        start: int64, first token of each segment inside its request.
        stop: int64, the token after the last.
        written: bool, whether the rank writes the segment's rows; None where it writes all of them.
    """
    holds = start < stop
    segments = torch.stack((request, start, stop), dim=1)[holds]
    if written is None:
        return SegmentTable(segments, torch.ones(len(segments), dtype=torch.bool))
    return SegmentTable(segments, written[holds])


def decode_flags(decodes: Sequence[bool], num_requests: int) -> list[bool]:
    """Return whether each request is a decode; raises BatchError DSA301 unless there is one bool a request, or no bool."""
    flags = list(decodes) or [False] * num_requests
    if len(flags) != num_requests:
        raise BatchError(f"decodes has {len(flags)} flags, the batch has {num_requests} requests")
    for request, flag in enumerate(flags):
        if not isinstance(flag, bool):
            raise BatchError(f"request {request}: decodes is {flag!r}; it must be True or False")
    return flags
