"""The sizes of a probe: every dim another number, a prime wherever no invariant makes it depend on others.

A stage that takes one dim for another, or a row count for the one beside it, cannot get past sizes of which no two agree.
"""

from collections.abc import Mapping

import torch

from dsa_contracts import CpBatch, Layout
from dsa_contracts.core.marks import DType
from dsa_contracts.dsa.row_formats import SCALE_GROUP, RowFormat
from dsa_cp.layer.models import ModelDims
from dsa_cp.layouts import Interleave, build_batch

CP_SIZE, CP_RANK = 3, 2
EXTEND_LENS, PREFIX_LENS = (2, 4, 11), (1, 6, 0)
ROW_ALIGNMENT = 7
"""Makes nnz 17, nnz_local 5, nnz_padded 7 and nnz_gathered 21 on rank 2 of 3 under interleave."""

PAGE_SIZE, NUM_PAGES, MAX_PAGES, MAX_POSITION = 11, 23, 41, 47
HEADS, INDEX_HEADS, TOPK = 2, 19, 13
RANK, ROPE, INDEX_WIDTH = 31, 2 * 17, 37
"""A rotation pairs elements, so its width is even: twice a prime."""

_SPARE = (53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109, 113)


def model_for(formats: str) -> ModelDims:
    """Return the dims of the probe's model, from the names of the row formats that it is used with.

    fp8_656 has a scale for each 128 elements, so its latent is 128 wide; a float32 scale inside a row stands at a multiple
    of four bytes, so the indexer's fp8 key is 4 * 11 wide.
    """
    has_index_scale = "index_fp8" in formats
    return ModelDims(
        "probe",
        num_heads=HEADS,
        kv_lora_rank=SCALE_GROUP if "fp8_656" in formats else RANK,
        qk_rope_head_dim=ROPE,
        qk_nope_head_dim=43,
        index_topk=TOPK,
        num_index_heads=INDEX_HEADS,
        index_head_dim=4 * 11 if has_index_scale else INDEX_WIDTH,
    )


def probe_batch(cp_size: int = CP_SIZE, cp_rank: int = CP_RANK, layout: Layout | None = None) -> CpBatch[Layout]:
    """Return the batch of a probe as one rank sees it, with slots and pages."""
    lens = [extend + prefix for extend, prefix in zip(EXTEND_LENS, PREFIX_LENS, strict=True)]
    table = torch.zeros(len(lens), MAX_PAGES, dtype=torch.int32)
    slots = []
    for request, (extend, prefix) in enumerate(zip(EXTEND_LENS, PREFIX_LENS, strict=True)):
        table[request, 0] = 5 * request + 1
        slots += [(5 * request + 1) * PAGE_SIZE + token for token in range(prefix, prefix + extend)]
    batch = build_batch(
        layout or Interleave(),
        cp_size,
        cp_rank,
        EXTEND_LENS,
        PREFIX_LENS,
        row_alignment=ROW_ALIGNMENT,
        out_cache_loc=torch.tensor(slots),
        page_table=table,
        page_size=PAGE_SIZE,
    )
    batch.make_index_tensors()
    return batch


def sizes_for(batch: CpBatch[Layout], formats: Mapping[str, RowFormat[object, DType, DType]]) -> dict[str, int]:
    """Return the size of every dim, by its written name.

    Args:
        batch: the batch; the model's dims are bound for it.
        formats: row formats by parameter: `row_format` makes `row_bytes`, `index_format` makes `index_row_bytes`.
    """
    model_for("-".join(row_format.name for row_format in formats.values())).bind(batch)
    bound = {name: dim.value for name, dim in batch.dims.dims.items()}
    widths = {
        f"{name.removesuffix('row_format').removesuffix('format')}row_bytes": f.row_bytes for name, f in formats.items()
    }
    return _Sizes(
        bound
        | widths
        | {
            "num_pages": NUM_PAGES,
            "page_size": PAGE_SIZE,
            "num_slots": NUM_PAGES * PAGE_SIZE,
            "max_pages": MAX_PAGES,
            "max_position": MAX_POSITION,
            "cos_sin_width": ROPE,
        }
    )


class _Sizes(dict[str, int]):
    """Sizes by name; a dim that is not known here is the next prime that nothing else is."""

    def __missing__(self, name: str) -> int:
        self[name] = next(prime for prime in _SPARE if prime not in self.values())
        return self[name]
