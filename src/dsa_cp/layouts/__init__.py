"""Context-parallel layouts, and batches built from them.

A layout says which segments of which request each rank holds; everything else is derived from the segments by code that
knows no layout (`indices`, `build`). The arithmetic of both is in `formulas`.
"""

import re

from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.dsa.layout import Layout
from dsa_cp.layouts.build import build_batch, build_batches
from dsa_cp.layouts.interleave import Interleave
from dsa_cp.layouts.vllm_zigzag import VllmZigzag
from dsa_cp.layouts.zigzag import Zigzag

__all__ = ["Interleave", "VllmZigzag", "Zigzag", "build_batch", "build_batches", "layout_by_name"]

_INTERLEAVE = re.compile(r"interleave(?:\(block=([0-9]{1,9})\))?")


def layout_by_name(text: str) -> Layout:
    """Return the layout with this written name, as `Layout.name` gives it.

    Raises:
        ArgumentError: DSA602, no layout has the name, or the block is 0.
    """
    if text == "zigzag":
        return Zigzag()
    if text == "vllm_zigzag":
        return VllmZigzag()
    match = _INTERLEAVE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        allowed = "zigzag, interleave, interleave(block=64) with any block, vllm_zigzag"
        raise ArgumentError(f"layout is {text!r}; it must be one of {allowed}")
    return Interleave(int(match[1] or 1))
