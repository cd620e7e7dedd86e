"""Triton's `rope_quantize` against the reference and flashinfer; on a CPU its op's torch implementation."""

import sys

import pytest
import torch
from torch import Tensor

from dsa_contracts import RopeStyle
from dsa_cp.numerics.rotation import cos_sin_table
from tests.support.kernel_cases import (
    DEVICES,
    GPU,
    batch_of,
    bytes_differ,
    flashinfer_stages,
    normal,
    poison,
    positions_of,
    references,
    triton_stages,
)

TABLE = cos_sin_table(5000, 64, 10000.0)
STYLES = [RopeStyle.NEOX, RopeStyle.INTERLEAVED]


def inputs(rows: int, heads: int, layout: str, device: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return q and K halves: dense, as column slices of wider rows, or with heads in front as a batched product leaves."""
    if layout == "slices":
        q, k = normal(device, rows, heads, 576), normal(device, rows, 584)
        return q[..., :512], q[..., 512:], k[:, 8:520], k[:, 520:]
    q_nope = normal(device, heads, rows, 512).transpose(0, 1) if layout == "heads first" else normal(device, rows, heads, 512)
    return q_nope, normal(device, rows, heads, 64), normal(device, rows, 512), normal(device, rows, 64)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("layout", ["dense", "slices", "heads first"])
@pytest.mark.parametrize(("rows", "heads"), [(0, 8), (1, 128), (7, 24), (127, 16), (4097, 2)])
def test_codes_equal_the_reference(rows: int, heads: int, layout: str, style: RopeStyle, device: str) -> None:
    batch, table = batch_of(rows, device), TABLE.to(device)
    given = inputs(rows, heads, layout, device)
    positions = positions_of(batch)
    want_q, want_kv = references.rope_quantize(*given, positions, table, style, 1.0, 0.37, batch)
    poison(device, rows * heads * 576)
    q, kv = triton_stages.rope_quantize(*given, positions, table, style, 1.0, 0.37, batch)
    assert bytes_differ(q, want_q) == 0
    assert bytes_differ(kv, want_kv) == 0


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("style", STYLES)
def test_codes_saturate_and_keep_nan(style: RopeStyle, device: str) -> None:
    batch, table = batch_of(4, device), TABLE.to(device)
    q_nope, q_rope, k_nope, k_rope = inputs(4, 2, "dense", device)
    ends = torch.tensor([1e4, -1e4, float("inf"), -float("inf"), 464.0, 465.0, 448.0, -0.0], device=device)
    k_nope[1, :8], q_nope[2, 1, :8], q_rope[3, 0, :8] = ends, ends, 1e4
    k_nope[0, 3], k_rope[2, 5] = float("nan"), float("nan")
    q, kv = triton_stages.rope_quantize(q_nope, q_rope, k_nope, k_rope, positions_of(batch), table, style, 1.0, 1.0, batch)
    latent = kv.view(torch.float8_e4m3fn).float()[1, :8].tolist()
    assert latent == [448.0, -448.0, 448.0, -448.0, 448.0, 448.0, 448.0, 0.0]
    assert q.float()[2, 1, :8].tolist() == latent
    assert q.float().abs().max() == 448.0
    assert kv.view(torch.float8_e4m3fn).float().isnan().nonzero()[:, 0].tolist() == [0, 2, 2]


@pytest.mark.gpu
@GPU
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(("rows", "heads", "scale"), [(1, 128, 1.0), (127, 64, 2.5), (4097, 128, 0.37), (4096, 16, 1.0)])
def test_codes_equal_flashinfer_but_for_ties(rows: int, heads: int, scale: float, style: RopeStyle) -> None:
    pytest.importorskip("flashinfer")
    batch, table = batch_of(rows, "cuda"), TABLE.to("cuda")
    given = inputs(rows, heads, "slices", "cuda")
    args = (*given, positions_of(batch), table, style, scale, scale, batch)
    q, kv = triton_stages.rope_quantize(*args)
    other_q, other_kv = flashinfer_stages.rope_quantize(*args)
    got = torch.cat([q.view(torch.uint8).flatten(), kv.flatten()]).int()
    other = torch.cat([other_q.view(torch.uint8).flatten(), other_kv.flatten()]).int()
    differ = got != other
    sys.stdout.write(f"rows {rows} heads {heads} {style.value}: {int(differ.sum())} of {differ.numel()} codes differ" + "\n")
    assert int(differ.sum()) < 1e-4 * differ.numel()
    assert int((got - other).abs().max()) <= 1


@pytest.mark.gpu
@GPU
def test_flashinfer_writes_no_rows_without_a_launch() -> None:
    pytest.importorskip("flashinfer")
    batch = batch_of(0, "cuda")
    args = (*inputs(0, 8, "dense", "cuda"), positions_of(batch), TABLE.to("cuda"), RopeStyle.NEOX, 1.0, 1.0, batch)
    q, kv = flashinfer_stages.rope_quantize(*args)
    torch.cuda.synchronize()
    assert q.shape == (0, 8, 576)
    assert kv.shape == (0, 576)
