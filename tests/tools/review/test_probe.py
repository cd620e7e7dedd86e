"""The probe: every stage and the path fit, and a stage that does not is found."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import dsa_contracts.stages as contracts
import dsa_cp.stages as stages
from dsa_contracts import CpBatch, contract_of
from dsa_contracts.dsa.row_formats import bf16_format, index_fp8_format
from dsa_cp.layer.placements import PLACEMENTS
from dsa_cp.layouts import Zigzag
from dsa_cp.planner import make_plan
from dsa_cp.planner.search import legal_paths
from dsa_cp.tools.review.probe.cases import cases_of
from dsa_cp.tools.review.probe.fake import FITS, ProbeOutcome, outcome_of
from dsa_cp.tools.review.probe.path_probe import data_readers, probe_path
from dsa_cp.tools.review.probe.probe_report import lines_of
from dsa_cp.tools.review.probe.sizes import CP_SIZE, probe_batch, sizes_for
from dsa_cp.tools.review.probe.stage_probe import ProbeResult, checked, probe_case, probe_stages

READERS = ("attend", "gather_write_kv", "gather_write_kv_and_index", "select_topk", "write_kv")
DERIVED = {"nnz_gathered", "qk_rope_head_dim", "qk_head_dim", "num_slots", "cos_sin_width", "row_bytes", "index_row_bytes"}
"""Sizes that follow from others."""


def test_every_free_dim_is_a_prime_of_its_own() -> None:
    sizes = sizes_for(probe_batch(), {"row_format": bf16_format(31, 34), "index_format": index_fp8_format(44)})
    free = {name: size for name, size in sizes.items() if name not in DERIVED | {"index_head_dim"}}
    assert all(size > 1 and all(size % divisor for divisor in range(2, size)) for size in free.values()), free
    assert sizes.pop("cos_sin_width") == sizes["qk_rope_head_dim"]
    assert len(set(sizes.values())) == len(sizes)
    counts = ["nnz", "nnz_local", "nnz_padded", "nnz_gathered", "num_requests"]
    assert [sizes[name] for name in counts] == [17, 5, 7, 21, 3]


@pytest.mark.parametrize("name", stages.__all__)
def test_each_stage_fits_in_every_case(name: str) -> None:
    results = list(probe_stages((name,)))
    assert results
    assert [result for result in results if not result.is_clean] == []
    verdicts = {result.fake.verdict for result in results}
    assert verdicts == ({"data-dependent"} if name in READERS else {"fits"})


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_the_whole_path_fits_with_the_contracts_of_stages_that_read_data_in_their_place(placement: str) -> None:
    row_format = next(path.row_format for path in legal_paths(Zigzag) if path.name == placement)
    plan = make_plan("torch_reference", row_format, cp_size=CP_SIZE, placement=placement)
    result = probe_path(plan, Zigzag(), READERS)
    assert (result.fake, result.real) == (FITS, FITS)


def test_stages_that_read_data_are_found_by_running_them() -> None:
    assert data_readers() == READERS


def test_the_operation_that_reads_data_is_named_with_its_line() -> None:
    result = next(iter(probe_stages(("write_kv",))))
    assert result.fake.what == "aten.nonzero.default"
    assert result.fake.where.startswith("dsa_cp/stages/write_kv.py:")
    assert result.fake.where.endswith(": slots[loc[written]] = kv[written]")
    assert result.real == FITS


def merge_with(body: Callable[[Any, Any, CpBatch[Any]], Any]) -> ProbeResult:
    """What the first case of merge_q shows with another body."""

    def merge_q(q_nope: Any, q_rope: Any, batch: Any) -> Any:
        return body(q_nope, q_rope, batch)

    contract = contract_of(contracts.merge_q)
    return probe_case(contract, checked(contract, merge_q), next(cases_of(contract)))


def test_a_result_with_other_strides_is_refused() -> None:
    result = merge_with(lambda nope, rope, batch: torch.cat([rope, nope, rope], dim=-1)[..., 34:])
    assert (result.is_clean, result.fake.verdict) == (False, "refused")
    assert result.fake.what.splitlines()[0] == "StageOutputError DSA204: merge_q: q is not contiguous"


def test_a_result_with_other_dims_is_refused() -> None:
    result = merge_with(lambda nope, rope, batch: torch.cat([nope, rope], dim=-1)[: batch.nnz_local - 1].contiguous())
    assert result.fake.what.splitlines()[0].startswith("StageOutputError DSA202: merge_q: q has 4 rows")


def test_a_result_that_takes_one_row_count_for_another_is_refused() -> None:
    result = merge_with(lambda nope, rope, batch: nope.new_empty(batch.nnz_padded, 2, 65))
    assert result.fake.what.splitlines()[0].startswith("StageOutputError DSA202: merge_q: q has 7 rows")


def test_a_stage_that_reads_a_value_is_found_and_judged_on_real_tensors() -> None:
    def body(nope: Any, rope: Any, batch: Any) -> Any:
        if bool((nope == 0).all()):
            return nope
        return torch.cat([nope, rope], dim=-1)

    result = merge_with(body)
    assert (result.fake.verdict, result.fake.what) == ("data-dependent", "aten._local_scalar_dense.default")
    assert (result.real, result.is_clean) == (FITS, True)


def test_a_stage_that_fails_is_a_finding() -> None:
    result = merge_with(lambda nope, rope, batch: nope @ rope)
    assert (result.fake.verdict, result.is_clean) == ("failed", False)
    assert result.fake.what.startswith("RuntimeError: ")


def test_any_error_of_a_call_becomes_an_outcome() -> None:
    def fail() -> None:
        raise KeyError("x")

    assert outcome_of(lambda: None) == FITS
    assert outcome_of(fail) == ProbeOutcome("failed", "KeyError: 'x'")


def test_the_report_has_a_line_a_subject_and_a_remark_a_fault() -> None:
    reads = ProbeOutcome("data-dependent", "aten.item", "file.py:3: x.item()")
    results = [
        ProbeResult("a", "one", FITS),
        ProbeResult("a", "two", ProbeOutcome("refused", "wrong", "")),
        ProbeResult("b", "", reads, FITS),
        ProbeResult("path p", "zigzag", FITS, FITS, ("b",)),
    ]
    headers, rows, remarks = lines_of(results)
    assert headers == ["subject", "cases", "fake tensors", "real tensors", "clean"]
    assert rows == [
        ["a", "2", "fits 1, refused 1", "not needed", "NO"],
        ["b", "1", "reads data", "fits", "yes"],
        ["path p", "1", "fits", "fits", "yes"],
    ]
    assert remarks == [
        "b reads data: aten.item at file.py:3: x.item()",
        "on the path under fake tensors their contracts stood for b",
        "a (two): wrong",
    ]
