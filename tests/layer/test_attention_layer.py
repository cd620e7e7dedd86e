"""The door to a layer: the lines of the README run, and what cannot be called is refused before the first stage."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import Comm, CpBatch
from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.core.marks import BF16
from dsa_contracts.dsa.codes import BatchError, PlanError
from dsa_cp.comm import SimulatedGroup, run_ranks
from dsa_cp.layer.cache import declare_cache, new_cache
from dsa_cp.layer.inputs import declare_inputs, draw, shard_inputs
from dsa_cp.layer.models import MODELS
from dsa_cp.layouts import Interleave, Zigzag, build_batch
from dsa_cp.planner import attention_layer, cache_formats, make_plan

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
MODEL, CPU = MODELS["tiny"], torch.device("cpu")
EXTEND_LENS, LAYERS = [7, 2], 2
SLOTS = torch.tensor([64, 65, 66, 67, 68, 69, 70, 192, 193])
PAGES = torch.tensor([[1], [3]], dtype=torch.int32)


def lines_of_the_readme() -> str:
    """The program between the markers."""
    text = README.partition("<!-- engine: begin -->\n")[2].partition("<!-- engine: end -->")[0]
    return text.partition("```python\n")[2].partition("```")[0]


def projected(layer: int, rows: Tensor) -> dict[str, Tensor]:
    """What an engine's projections leave of one layer, for some rows of the batch."""
    drawn = draw(MODEL, sum(EXTEND_LENS), 0, 0, layer, CPU)
    q, latent = drawn.q[rows], drawn.latent[rows]
    rank = MODEL.kv_lora_rank
    halves = {"q_nope": q[..., :rank], "q_rope": q[..., rank:], "k_nope": latent[:, :rank], "k_rope": latent[:, rank:]}
    indexer = {"q_index": drawn.q_index[rows], "k_index": drawn.k_index[rows], "head_weights": drawn.head_weights[rows]}
    return {**halves, **indexer}


def run_the_readme(comm: Comm) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Run the lines on one rank: the output and the KV rows of each layer, and this rank's rows."""
    given: dict[str, Any] = {
        "comm": comm,
        "model": MODEL,
        "num_layers": LAYERS,
        "num_pages": 4,
        "page_size": 64,
        "extend_lens": EXTEND_LENS,
        "slots": SLOTS,
        "pages": PAGES,
        "projected": projected,
        "outputs": [torch.empty(0)] * LAYERS,
    }
    exec(compile(lines_of_the_readme(), "README.md", "exec"), given)
    return given["outputs"], [cache.kv for cache in given["kv_caches"]], given["batch"].local_rows


def test_the_readme_calls_a_layer_in_ten_lines() -> None:
    lines = [line for line in lines_of_the_readme().splitlines() if line and not line.startswith("from ")]
    assert len(lines) <= 10


def test_the_lines_of_the_readme_leave_the_bytes_and_outputs_of_one_rank() -> None:
    ((alone, caches, order),) = run_ranks(1, run_the_readme)
    assert sorted(order.tolist()) == list(range(9))
    for outs, ranks_caches, rows in run_ranks(2, run_the_readme):
        assert 0 < len(rows) < 9
        for layer in range(LAYERS):
            expected = torch.empty_like(alone[layer])
            expected[order] = alone[layer]
            assert torch.equal(ranks_caches[layer], caches[layer])
            torch.testing.assert_close(outs[layer], expected[rows], rtol=1e-5, atol=1e-5)
    assert sorted(caches[0].view(-1, caches[0].shape[-1]).any(dim=1).nonzero().flatten().tolist()) == SLOTS.tolist()


def batch_of(**facts: Any) -> CpBatch[Any]:
    """The batch of one rank of one."""
    return build_batch(Interleave(), 1, 0, EXTEND_LENS, **{"out_cache_loc": SLOTS, "page_table": PAGES, **facts})


def layer_for(batch: CpBatch[Any], cp_size: int = 1, kernels: str = "torch") -> Any:
    plan = make_plan("trtllm", "fp8", cp_size=cp_size)
    return attention_layer(batch, MODEL, plan, SimulatedGroup(1).comm(0), kernels)


def test_a_plan_for_another_number_of_ranks_is_refused() -> None:
    with pytest.raises(PlanError) as caught:
        layer_for(batch_of(), cp_size=2)
    assert str(caught.value) == (
        "PlanError DSA402: the plan is for 2 ranks, the batch is spread over 1\n"
        "  where     cp_rank=0 of 1, interleave\n"
        "  try       make the plan for the group of the batch, and give build_batch its name"
    )


def test_a_batch_that_follows_another_plan_is_refused_and_one_that_names_this_plan_is_not() -> None:
    with pytest.raises(PlanError) as caught:
        layer_for(batch_of(plan="trtllm/fp8/gather_early"))
    assert caught.value.headline == (
        "the batch follows plan trtllm/fp8/gather_early, the layer is asked for with trtllm/fp8/rope_quantize_gather"
    )
    assert layer_for(batch_of(plan="trtllm/fp8/rope_quantize_gather")).route.name == "rope_quantize_gather"


@pytest.mark.parametrize("name", ["out_cache_loc", "page_table"])
def test_a_batch_without_slot_mapping_or_page_table_is_refused(name: str) -> None:
    with pytest.raises(BatchError) as caught:
        layer_for(batch_of(**{name: None}))
    assert (caught.value.code, caught.value.headline) == (
        "DSA304",
        f"attention_layer needs {name}, which this batch does not have",
    )


def test_an_unknown_kernel_set_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ArgumentError) as caught:
        layer_for(batch_of(), kernels="cutlass")
    assert caught.value.headline == (
        "kernel set 'cutlass' is not known; known are torch, triton, flash_mla, flashinfer, trtllm"
    )


def test_inputs_are_all_there_and_no_other() -> None:
    batch, rows = batch_of(), projected(0, torch.arange(9))
    known = "q_nope, q_rope, k_nope, k_rope, q_index, k_index, head_weights"
    with pytest.raises(ArgumentError) as caught:
        declare_inputs(batch, **{name: value for name, value in rows.items() if name != "k_rope"})
    assert caught.value.headline == f"k_rope is missing; a layer takes {known}"
    with pytest.raises(ArgumentError) as caught:
        declare_inputs(batch, **rows, k_pe=rows["k_rope"])
    assert caught.value.headline == f"k_pe is no input; a layer takes {known}"
    assert declare_inputs(batch, **rows).k_rope is rows["k_rope"]


def test_pools_of_another_width_than_the_rows_are_refused() -> None:
    formats = cache_formats(make_plan("trtllm", "fp8"), MODEL)
    kv, index = torch.zeros(2, 64, 144, dtype=torch.uint8), torch.zeros(2, 64, 36, dtype=torch.uint8)
    assert declare_cache(formats, kv, index).kv is kv
    with pytest.raises(ArgumentError) as caught:
        declare_cache(formats, kv, index[..., :32])
    assert caught.value.headline == "a pool of index_fp8 rows is 32 bytes wide; a row has 36"


def test_outputs_come_in_the_dtype_that_is_asked_for() -> None:
    batch, cache = batch_of(), new_cache(cache_formats(make_plan("trtllm", "fp8", cp_size=1), MODEL), 4, 64)
    layer = layer_for(batch)
    inputs: Any = shard_inputs(draw(MODEL, 9, 0, 0, 0, CPU), MODEL, layer.setting.local, batch)
    wide, narrow = layer(inputs, cache, 0).out, layer.returning(BF16)(inputs, cache, 0).out
    assert (wide.dtype, narrow.dtype) == (torch.float32, torch.bfloat16)
    assert torch.equal(narrow, wide.bfloat16())


def test_zigzag_rows_do_not_pass_for_those_of_another_batch() -> None:
    layer, cache = layer_for(batch_of()), new_cache(cache_formats(make_plan("trtllm", "fp8", cp_size=1), MODEL), 4, 64)
    other: CpBatch[Any] = build_batch(Zigzag(), 1, 0, EXTEND_LENS, out_cache_loc=SLOTS, page_table=PAGES)
    inputs: Any = declare_inputs(other, **projected(0, other.local_rows))
    with pytest.raises(Exception, match="DSA106"):
        layer(inputs, cache, 0)
