"""A layer of Triton stages in a CUDA graph, captured with the checks of development mode running, and its replay."""

from typing import Any

import pytest
import torch

from dsa_contracts import RopeStyle
from dsa_contracts.core.marks import F32
from dsa_contracts.dsa.row_formats import fp8_format
from dsa_cp.comm import SimulatedGroup
from dsa_cp.numerics.rotation import cos_sin_table
from tests.support.kernel_cases import GPU, attend_case, bytes_differ, flash_mla_stages, normal, positions_of, triton_stages
from tests.support.whole_layer import replayed_layer

pytestmark = [pytest.mark.gpu, GPU]


@pytest.mark.parametrize("module", [triton_stages, flash_mla_stages], ids=["triton", "flash_mla"])
def test_a_replayed_layer_follows_its_inputs(module: Any) -> None:
    if module is flash_mla_stages:
        pytest.importorskip("flash_mla")
    row_format: Any = fp8_format()
    case = attend_case("fp8", 9, 64, 128, "cuda", torch.float8_e4m3fn)
    batch: Any = case.batch
    table: Any = cos_sin_table(512, 64, 10000.0).cuda()
    loc: Any = case.page_table[0, 0].long() * 64 + torch.arange(9, device="cuda")
    halves: Any = (normal("cuda", 9, 64, 512), normal("cuda", 9, 64, 64), normal("cuda", 9, 512), normal("cuda", 9, 64))
    tables: Any = (case.topk, case.causal_lens, case.request_of_row, case.page_table)
    pool: Any = case.pool

    def layer() -> tuple[torch.Tensor, torch.Tensor]:
        q, kv = triton_stages.rope_quantize(*halves, positions_of(batch), table, RopeStyle.NEOX, 1.0, 1.0, batch)
        triton_stages.write_kv(pool, kv.detach(), loc, row_format, batch)
        out, lse = module.attend(q, pool, *tables, 0.07, 1.0, 1.0, F32, row_format, batch)
        return out, lse

    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        layer()
    torch.cuda.current_stream().wait_stream(stream)
    batch.log.calls.clear()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = layer()
    assert sum(batch.log.calls.values()) == 3
    for half in halves:
        half.normal_()
    graph.replay()
    torch.cuda.synchronize()
    replayed = [tensor.clone() for tensor in captured]
    for got, want in zip(replayed, layer(), strict=True):
        assert bytes_differ(got, want) == 0


@pytest.mark.parametrize("kernels", ["triton", "flash_mla"])
def test_a_whole_layer_with_the_choice_of_keys_is_replayed(kernels: str) -> None:
    if kernels == "flash_mla":
        pytest.importorskip("flash_mla")
    checked, same, is_new = replayed_layer(SimulatedGroup(1).comm(0), kernels)
    assert checked >= 8
    assert same
    assert is_new
