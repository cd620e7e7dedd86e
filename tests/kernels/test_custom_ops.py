"""The custom ops: torch's own checks of them, and a compiled layer without a graph break."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import RopeStyle, unchecked_function
from dsa_contracts.core.marks import F32
from dsa_contracts.dsa.row_formats import fp8_format
from dsa_cp.kernels import custom_ops
from dsa_cp.numerics.rotation import cos_sin_table
from tests.support.kernel_cases import DEVICES, attend_case, batch_of, bytes_differ, index_case, normal, triton_stages


def rope_arguments(rows: int, device: str) -> tuple[Any, ...]:
    halves = (normal(device, rows, 4, 512), normal(device, rows, 4, 64), normal(device, rows, 512), normal(device, rows, 64))
    table = cos_sin_table(64, 64, 10000.0).to(device)
    return (*halves, torch.arange(rows, device=device) % 64, table, True, 1.0, 0.5)


@pytest.mark.parametrize("device", DEVICES)
def test_opcheck_passes(device: str) -> None:
    torch.library.opcheck(custom_ops.ROPE_QUANTIZE_OP, rope_arguments(5, device))
    pool = torch.zeros(64, 576, dtype=torch.uint8, device=device)
    rows = torch.randint(0, 256, (5, 576), dtype=torch.uint8, device=device)
    torch.library.opcheck(custom_ops.WRITE_KV_OP, (pool, rows, torch.tensor([3, -1, 9, 63, 0], device=device)))
    values = normal(device, 5, 576)
    torch.library.opcheck(custom_ops.QUANTIZE_GROUPS_OP, (values[:, :512], values[:, 512:], 128))
    torch.library.opcheck(custom_ops.QUANTIZE_GROUPS_OP, (values[:, :128], None, 128))
    case = attend_case("fp8", 9, 16, 128, device, torch.float8_e4m3fn)
    tables = (case.topk, case.causal_lens, case.request_of_row, case.page_table)
    arguments = (case.q.view(torch.uint8), case.pool, *tables, 0.07, 1.0, 1.0, torch.float32, 512, 0)
    torch.library.opcheck(custom_ops.ATTEND_OP, arguments)
    chosen = index_case(9, 16, "index_fp8", 64, device)
    torch.library.opcheck(custom_ops.BEST_KEYS_OP, (*chosen.arguments, 64, chosen.batch.max_seq_len, True))


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")  # torch 2.11 says it of its own inductor
@pytest.mark.parametrize("device", DEVICES)
def test_a_compiled_layer_has_no_graph_break_and_the_same_bytes(device: str) -> None:
    rope, write = unchecked_function(triton_stages.rope_quantize), unchecked_function(triton_stages.write_kv)
    attend, row_format = unchecked_function(triton_stages.attend), fp8_format()
    case = attend_case("fp8", 9, 16, 128, device, torch.float8_e4m3fn)
    batch: Any = case.batch
    table = cos_sin_table(64, 64, 10000.0).to(device)
    loc: Any = torch.arange(9, device=device) * 3
    halves: Any = (normal(device, 9, 16, 512), normal(device, 9, 16, 64), normal(device, 9, 512), normal(device, 9, 64))
    positions: Any = torch.arange(9, device=device)
    tables: Any = (case.topk, case.causal_lens, case.request_of_row, case.page_table)

    def layer(pool: Any) -> tuple[Tensor, Tensor, Tensor]:
        q, kv = rope(*halves, positions, table, RopeStyle.NEOX, 1.0, 1.0, batch)
        write(pool, kv, loc, row_format, batch)
        out, lse = attend(q, pool, *tables, 0.07, 1.0, 1.0, F32, row_format, batch)
        return q, out, lse

    pools = case.pool.clone(), case.pool.clone()
    eager = layer(pools[0])
    backend = "aot_eager" if device == "cpu" else "inductor"
    compiled = torch.compile(layer, fullgraph=True, backend=backend)(pools[1])
    assert torch.equal(*pools)
    assert not torch.equal(pools[0], case.pool)
    for got, want in zip(compiled, eager, strict=True):
        assert bytes_differ(got, want) == 0


def test_in_production_mode_a_stage_is_the_function_that_compiles() -> None:
    lines = (
        "from dsa_contracts import unchecked_function",
        "from dsa_cp.kernels import triton_kernels as t",
        "print([unchecked_function(f) is f for f in (t.rope_quantize, t.write_kv, t.quantize_rows, t.attend)])",
    )
    done = subprocess.run(
        [sys.executable, "-c", "; ".join(lines)],
        env={"DSA_CONTRACTS": "production", "PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[True, True, True, True]"


def test_kernel_sets_import_no_optional_package() -> None:
    lines = (
        "import sys, dsa_cp.layer.kernel_sets",
        "print([name for name in ('triton', 'flashinfer', 'flash_mla') if name in sys.modules])",
    )
    done = subprocess.run(
        [sys.executable, "-c", "; ".join(lines)],
        env={"PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_batch_of_no_rows_goes_through_the_ops() -> None:
    assert batch_of(0, "cpu").nnz_local == 0
    q, kv = custom_ops.ROPE_QUANTIZE_OP(*rope_arguments(0, "cpu"))
    assert q.shape == (0, 4, 576)
    assert kv.shape == (0, 576)
