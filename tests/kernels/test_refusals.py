"""What a kernel is not built for is refused with a code before a launch; whole messages compared."""

from typing import Any

import pytest
import torch

from dsa_contracts import RopeStyle
from dsa_contracts.core.errors import StageInputError
from dsa_contracts.core.marks import F32
from dsa_contracts.dsa.codes import PlanError
from dsa_cp.kernels import requirements
from dsa_cp.layer.kernel_sets import KERNEL_SETS, TorchKernels, available_on
from tests.support.kernel_cases import (
    GPU,
    AttendCase,
    attend_case,
    batch_of,
    flash_mla_stages,
    flashinfer_stages,
    normal,
    positions_of,
    triton_stages,
)


def attend_with(module: Any, case: AttendCase) -> None:
    tables = (case.topk, case.causal_lens, case.request_of_row, case.page_table)
    module.attend(case.q, case.pool, *tables, 0.1, 1.0, 1.0, F32, case.row_format, case.batch)


def test_flash_mla_refuses_a_cpu() -> None:
    with pytest.raises(PlanError) as caught:
        attend_with(flash_mla_stages, attend_case("bf16", 6, 64, 16, "cpu", torch.bfloat16))
    assert str(caught.value) == (
        "PlanError DSA401: flash_mla attend is built for compute capabilities of major 9, 10, not for 0\n"
        "  try       a kernel set without this limit; `dsa_cp.layer.kernel_sets` lists them"
    )


def test_trtllm_gen_refuses_what_is_not_compute_capability_10_0_or_10_3() -> None:
    with pytest.raises(PlanError) as caught:
        attend_with(flashinfer_stages, attend_case("bf16", 6, 64, 16, "cpu", torch.bfloat16))
    assert str(caught.value) == (
        "PlanError DSA401: flashinfer trtllm-gen attend is built for compute capability (10, 0), (10, 3), not for cpu\n"
        "  try       a kernel set without this limit; `dsa_cp.layer.kernel_sets` lists them"
    )


@pytest.mark.gpu
@GPU
def test_trtllm_gen_refuses_this_gpu_by_its_capability() -> None:
    capability = torch.cuda.get_device_capability()
    if capability in flashinfer_stages.TRTLLM_CAPABILITIES:
        pytest.skip("this GPU has trtllm-gen")
    with pytest.raises(PlanError, match=f"not for \\({capability[0]}, {capability[1]}\\)"):
        attend_with(flashinfer_stages, attend_case("bf16", 6, 64, 16, "cuda", torch.bfloat16))


@pytest.mark.gpu
@GPU
def test_flash_mla_refuses_sixteen_heads() -> None:
    with pytest.raises(PlanError) as caught:
        attend_with(flash_mla_stages, attend_case("bf16", 6, 16, 16, "cuda", torch.bfloat16))
    assert caught.value.headline == "flash_mla attend is built for num_local_heads 64, 128, not for 16"


def test_triton_attend_refuses_float32_queries() -> None:
    with pytest.raises(PlanError) as caught:
        attend_with(triton_stages, attend_case("bf16", 6, 4, 16, "cpu", torch.float32))
    assert caught.value.headline == "Triton attend is built for q torch.bfloat16, torch.float8_e4m3fn, not for torch.float32"


def test_triton_refuses_widths_that_are_no_powers_of_two() -> None:
    batch = batch_of(2, "cpu")
    halves = normal("cpu", 2, 4, 96), normal("cpu", 2, 4, 64), normal("cpu", 2, 96), normal("cpu", 2, 64)
    with pytest.raises(PlanError) as caught:
        triton_stages.rope_quantize(*halves, positions_of(batch), torch.zeros(8, 64), RopeStyle.NEOX, 1.0, 1.0, batch)
    assert str(caught.value) == "PlanError DSA401: Triton rope_quantize takes widths that are powers of two, not 96"


def test_misaligned_rows_are_refused_with_their_strides() -> None:
    rows = torch.empty(4, 72, dtype=torch.bfloat16)[:, :64]
    requirements.require_aligned("flashinfer rope_quantize", "k_rope", rows, 16)
    with pytest.raises(StageInputError) as caught:
        requirements.require_aligned("flashinfer rope_quantize", "k_rope", rows, 32)
    assert caught.value.code == "DSA104"
    assert caught.value.headline == "flashinfer rope_quantize: k_rope is not aligned to 32 bytes"
    assert caught.value.facts[0][1].endswith("strides of 144 bytes")


def test_each_set_says_why_it_cannot_run_on_a_cpu() -> None:
    reasons = available_on(torch.device("cpu"))
    assert list(reasons) == list(KERNEL_SETS)
    assert reasons["torch"] == ""
    assert reasons["triton"] == "needs compute capability 9.0 and newer, got cpu"
    assert reasons["trtllm"] == "needs compute capability 10.0 to 10.3, got cpu"


def test_a_set_has_every_stage_of_the_references() -> None:
    from dsa_cp import stages

    names = {name for name in vars(TorchKernels) if not name.startswith("_")}
    assert names == set(stages.__all__)
