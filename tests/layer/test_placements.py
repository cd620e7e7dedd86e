"""Every legal placement writes the same bytes as one rank, with padding rows and without, on every layout."""

from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import Comm, Layout
from dsa_cp.comm import run_ranks
from dsa_cp.demo.cells import QUANT_SCALE
from dsa_cp.demo.schedule import PrefillBatch, PrefillChunk, Schedule
from dsa_cp.layer.cache import new_cache
from dsa_cp.layer.inputs import draw, shard_inputs
from dsa_cp.layer.local_batch import LocalBatch, local_batch, padded_local_batch
from dsa_cp.layer.models import MODELS
from dsa_cp.layer.placements import PLACEMENTS
from dsa_cp.layouts import Interleave, VllmReplicated, VllmZigzag, Zigzag, build_batch
from dsa_cp.planner import attention_layer, cache_formats, make_plan
from dsa_cp.planner.search import legal_paths

MODEL = MODELS["tiny"]
CHUNKS = (
    PrefillChunk(0, 0, 19, (3,)),
    PrefillChunk(1, 64, 5, (7, 2)),
    PrefillChunk(2, 0, 1, (5,)),
    PrefillChunk(3, 10, 40, (1,)),
)
SCHEDULE = Schedule((PrefillBatch(0, CHUNKS),), num_pages=8, page_size=64, cached_tokens=64)
FORMAT_OF = {path.name: path.row_format for path in legal_paths(Zigzag)}


def layer_of(placement: str, layout: Layout, cp_size: int, padding: tuple[int, ...] | None) -> list[Any]:
    """Run one layer on every rank; returns (KV rows, index rows, out of real rows, rows) of each."""
    plan = make_plan("torch_reference", FORMAT_OF[placement], layout=layout.name, cp_size=cp_size, placement=placement)
    (planned,) = SCHEDULE.batches

    def body(comm: Comm) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        batch = build_batch(
            layout,
            comm.size,
            comm.rank,
            planned.extend_lens,
            planned.prefix_lens,
            padded_lens=padding,
            row_alignment=1 if padding is None else 8,
            out_cache_loc=torch.tensor(planned.out_cache_loc(64)),
            page_table=torch.tensor([[3, 0], [7, 2], [5, 0], [1, 0]], dtype=torch.int32),
        )
        local: LocalBatch[Any, Any] = local_batch(batch) if padding is None else padded_local_batch(batch)
        layer = attention_layer(batch, MODEL, plan, comm, local=local, layer_quant_scale=QUANT_SCALE)
        drawn = draw(MODEL, batch.nnz, 0, 0, 0, torch.device("cpu"))
        cache = new_cache(cache_formats(plan, MODEL), 8, 64)
        result = layer(shard_inputs(drawn, MODEL, local, batch), cache, 0)
        if padding is not None:
            padded = local.rows < 0
            assert torch.equal(result.out[padded], torch.zeros_like(result.out[padded]))
            assert bool(torch.isneginf(result.lse[padded]).all())
        return cache.kv, cache.index, result.out[local.rows >= 0], local.rows[local.rows >= 0]

    return run_ranks(cp_size, body)


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize(
    "layout", [Zigzag(), Interleave(), Interleave(block=4), VllmZigzag(), VllmReplicated()], ids=lambda x: x.name
)
@pytest.mark.parametrize("padding", [None, (19, 5, 1, 47), (24, 8, 8, 40)], ids=["exact", "tail", "each"])
def test_each_placement_leaves_the_bytes_and_outputs_of_one_rank(
    placement: str, layout: Layout, padding: tuple[int, ...] | None
) -> None:
    ((kv, index, out, _),) = layer_of(placement, Interleave(), 1, None)
    for rank_kv, rank_index, rank_out, rows in layer_of(placement, layout, 4, padding):
        assert torch.equal(rank_kv, kv)
        assert torch.equal(rank_index, index)
        torch.testing.assert_close(rank_out, out[rows], rtol=1e-5, atol=1e-5)


def test_both_orders_of_rope_and_gather_write_the_same_bf16_bytes() -> None:
    early, late = (layer_of(name, Zigzag(), 3, None)[1][0] for name in ("gather_rope", "rope_gather"))
    assert torch.equal(early, late)
    assert int(early.count_nonzero()) > 0


def test_quantising_before_and_after_the_gather_writes_the_same_fp8_656_bytes() -> None:
    names = ("rope_quantize_rows_gather", "rope_gather_quantize_rows", "gather_rope_quantize_rows")
    before, after, last = (layer_of(name, Interleave(), 4, None)[0][0] for name in names)
    assert torch.equal(before, after)
    assert torch.equal(before, last)


def test_only_the_slots_of_the_batch_are_written() -> None:
    kv = layer_of("rope_gather", Zigzag(), 4, None)[0][0]
    written = kv.view(-1, kv.shape[-1]).any(dim=-1).nonzero().flatten().tolist()
    (planned,) = SCHEDULE.batches
    assert written == sorted(planned.out_cache_loc(64))
