"""Context-parallel layouts, and batches built from them.

A layout says in formulas which segments of which request each rank holds (`symbolic`; the arithmetic is in `formulas`).
Everything else is derived from the segments by code that knows no layout (`indices`, `build`), and `dsa-cp prove` proves
the formulas and compares them with the segments. To add a layout: one file here or in a package of your own, and one line
with `register_layout`, or an entry point in the group `dsa_contracts.layouts`.
"""

from dsa_cp.layouts.build import build_batch, build_batches
from dsa_cp.layouts.interleave import Interleave
from dsa_cp.layouts.registry import layout_by_name, layout_choices, layout_examples, layout_names, register_layout
from dsa_cp.layouts.symbolic import ChunkedLayout, ChunkSizes, DealtLayout, Decodes, symbolic_half
from dsa_cp.layouts.vllm_replicated import VllmReplicated
from dsa_cp.layouts.vllm_zigzag import VllmZigzag
from dsa_cp.layouts.zigzag import Zigzag

__all__ = [
    "ChunkSizes",
    "ChunkedLayout",
    "DealtLayout",
    "Decodes",
    "Interleave",
    "VllmReplicated",
    "VllmZigzag",
    "Zigzag",
    "build_batch",
    "build_batches",
    "layout_by_name",
    "layout_choices",
    "layout_examples",
    "layout_names",
    "register_layout",
    "symbolic_half",
]

register_layout("zigzag", Zigzag)
register_layout("interleave", Interleave, examples=("interleave", "interleave(block=16)", "interleave(block=64)"))
register_layout("vllm_zigzag", VllmZigzag)
register_layout("vllm_replicated", VllmReplicated)
