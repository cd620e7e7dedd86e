"""Triton's `select_topk`: the reference's choice, except between keys whose scores float32 cannot tell apart."""

from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import checking_values, declare, declare_lasting
from dsa_contracts.core.marks import Plain
from dsa_contracts.dsa.states import IndexFp8Row, Local, Packed, Pool, Rotated
from dsa_cp.kernels import custom_ops
from dsa_cp.layouts import Interleave
from dsa_cp.numerics.best_keys import best_keys, index_scores, key_values
from dsa_cp.numerics.paged_keys import slots_of_request
from tests.support.kernel_cases import DEVICES, GPU, IndexCase, index_case, poison, references, triton_stages

REFERENCE: Any = best_keys
RELATIVE = 2e-5
"""How near two scores must be, as a part of the largest, for float32 sums over heads to exchange them."""


def scores_of(case: IndexCase, row: int) -> Tensor:
    """The float64 scores of all keys that a row sees; what is NaN is below all."""
    q, weights, pool, lens, request_of_row, table = case.arguments
    count = int(lens[row])
    slots = slots_of_request(table, int(request_of_row[row]), count, pool.shape[1])
    keys = key_values(pool.view(-1, pool.shape[-1])[slots], case.row_format.is_quantized).double()
    return index_scores(q[row : row + 1], weights[row : row + 1], keys)[0].nan_to_num(nan=-1e300)


def exchanged(case: IndexCase, got: Tensor, want: Tensor) -> int:
    """How many keys were chosen that the reference did not choose; each must be as good as float32 can tell."""
    count = 0
    for row in (got != want).any(dim=1).nonzero().flatten().tolist():
        mine, other = set(got[row].tolist()), set(want[row].tolist())
        assert len(mine) == len(other), row
        scores = scores_of(case, row)
        finite = scores[scores > -1e300]
        near = RELATIVE * float(finite.abs().max())
        worst = float(scores[sorted(other)].min())
        for key in mine ^ other:
            assert abs(float(scores[key]) - worst) <= near, (row, key)
        count += len(mine - other)
    return count


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("row_format", ["index_fp8", "index_bf16"])
@pytest.mark.parametrize(
    ("rows", "heads", "topk", "page_size"),
    [(0, 64, 64, 64), (1, 64, 256, 64), (7, 4, 64, 16), (127, 64, 2048, 64), (300, 20, 512, 32)],
)
def test_the_choice_is_the_reference_s(
    device: str, row_format: str, rows: int, heads: int, topk: int, page_size: int
) -> None:
    case = index_case(rows, heads, row_format, topk, device, page_size)
    run: Any = custom_ops.best_keys if device == "cuda" else custom_ops.BEST_KEYS_OP
    poison(device, rows * topk * 4)
    got = run(*case.arguments, topk, case.batch.max_seq_len, case.row_format.is_quantized)
    want = REFERENCE(*case.arguments, topk, case.row_format.is_quantized)
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    rising = torch.where(got < 0, 1 << 30, got)
    assert bool((rising.diff(dim=1) >= 0).all())
    assert bool(((got < 0) == (want < 0)).all())
    assert exchanged(case, got, want) <= got.numel() * 1e-3
    if device == "cpu":
        assert torch.equal(got, want)


@pytest.mark.parametrize("device", DEVICES)
def test_the_stage_passes_its_contract_with_values_checked(device: str) -> None:
    case = index_case(40, 64, "index_fp8", 64, device)
    q, weights, pool, _, _, table = case.arguments
    own: Any = case.batch
    with checking_values():
        arguments = (q, weights, pool, own.causal_lens.clone(), own.request_of_row.clone(), table, 64, case.row_format, own)
        for stages in (references, triton_stages):
            got = stages.select_topk(*branded(arguments))
            assert got.shape == (40, 64)


def branded(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with the brands that values mode asks for."""
    q, weights, pool, lens, requests, table, topk, row_format, batch = arguments
    local: Any = Local
    return (
        declare(q, local[Interleave], Rotated, batch, "test"),
        declare(weights, local[Interleave], Plain, batch, "test"),
        declare_lasting(pool, Pool, Packed[IndexFp8Row, Rotated], "test"),
        lens,
        requests,
        table,
        topk,
        row_format,
        batch,
    )


@pytest.mark.gpu
@GPU
def test_a_row_chooses_the_same_keys_whoever_is_beside_it() -> None:
    case = index_case(300, 64, "index_fp8", 512, "cuda")
    q, weights, pool, lens, requests, table = case.arguments
    whole = custom_ops.best_keys(q, weights, pool, lens, requests, table, 512, case.batch.max_seq_len, True)
    for rows in (slice(3, 4), slice(7, 300, 2), slice(299, None)):
        part = (
            q[rows].contiguous(),
            weights[rows].contiguous(),
            pool,
            lens[rows].contiguous(),
            requests[rows].contiguous(),
            table,
        )
        assert torch.equal(custom_ops.best_keys(*part, 512, case.batch.max_seq_len, True), whole[rows])


@pytest.mark.gpu
@GPU
def test_rows_that_come_in_parts_choose_the_same_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    from dsa_cp.triton_jit import best_keys as module

    launches: Any = module
    case = index_case(127, 64, "index_fp8", 512, "cuda")
    whole = launches.best_keys(*case.arguments, 512, case.batch.max_seq_len, True)
    monkeypatch.setattr(launches, "SCORE_BYTES", 4 * 10 * case.batch.max_seq_len)
    assert torch.equal(launches.best_keys(*case.arguments, 512, case.batch.max_seq_len, True), whole)


@pytest.mark.gpu
@GPU
@pytest.mark.parametrize("page_size", [16, 64])
def test_keys_that_are_laid_out_anew_and_keys_in_their_pages_have_the_same_scores(
    page_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dsa_cp.triton_jit import best_keys as module

    launches: Any = module
    case = index_case(127, 64, "index_fp8", 512, "cuda", page_size)
    flat = launches.best_keys(*case.arguments, 512, case.batch.max_seq_len, True)
    monkeypatch.setattr(launches, "FLAT_BYTES", 0)
    assert torch.equal(launches.best_keys(*case.arguments, 512, case.batch.max_seq_len, True), flat)
