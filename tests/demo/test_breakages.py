"""Every known wrong order does harm with checks off, and is refused by name with checks on."""

import json
import math

import pytest

from dsa_contracts.core.errors import ArgumentError
from dsa_cp.demo.break_report import BreakReport, run_breakages
from dsa_cp.demo.breakages import BREAKAGES, Breakage, breakage_by_name
from dsa_cp.demo.cells import RunSpec
from dsa_cp.demo.schedule import build_schedule
from dsa_cp.demo.trace import TraceRequest
from dsa_cp.layer.models import MODELS
from dsa_cp.layouts import Interleave, Zigzag

REQUESTS = (TraceRequest(0, 40, 1, (0,)), TraceRequest(1, 24, 1, (1,)))
SPEC = RunSpec(MODELS["tiny"], build_schedule(REQUESTS, chunk_tokens=64), cp_size=4, num_layers=1)
"""64 tokens: every rank has 16 rows in both layouts, so that no shape tells a wrong order from the right one."""

EXPECTED = {
    "gather-early": ("DSA102", "development"),
    "rank-major-order": ("DSA106", "development"),
    "identity-lens": ("DSA117", "values"),
    "rank-positions": ("DSA115", "values"),
    "other-layout": ("DSA106", "development"),
    "rope-twice": ("DSA107", "development"),
}


def test_every_breakage_is_expected_somewhere() -> None:
    assert list(EXPECTED) == list(BREAKAGES)


@pytest.mark.parametrize("layout", [Zigzag(), Interleave()], ids=lambda layout: layout.name)
@pytest.mark.parametrize("name", EXPECTED)
def test_a_breakage_harms_unchecked_and_is_refused_checked(name: str, layout: Zigzag | Interleave) -> None:
    (report,) = run_breakages(SPEC, (layout,), BREAKAGES[name])
    assert (report.code, report.refused_in) == EXPECTED[name]
    assert report.is_caught
    if name == "gather-early":
        assert report.crash.startswith("RuntimeError: ")
        assert report.output_error is None
    else:
        assert report.crash == ""
        assert report.output_error is not None
        assert report.output_error > 0.1


def test_rank_major_rows_are_refused_even_where_a_trim_dropped_their_brand() -> None:
    requests = (TraceRequest(0, 41, 1, (0,)), TraceRequest(1, 22, 1, (1,)))
    spec = RunSpec(MODELS["tiny"], build_schedule(requests, chunk_tokens=64), cp_size=4, num_layers=1)
    (report,) = run_breakages(spec, (Zigzag(),), BREAKAGES["rank-major-order"])
    assert (report.code, report.refused_in) == ("DSA125", "values")
    assert report.refusal == "write_kv: nothing states which rows kv holds"


def test_the_right_path_is_not_refused_by_the_same_runs() -> None:
    right = Breakage("right", "nothing is wrong", "", lambda job: job)
    (report,) = run_breakages(SPEC, (Zigzag(),), right)
    assert report == BreakReport("right", "zigzag", "", 0, report.output_error, "", "", "")
    assert report.output_error is not None
    assert report.output_error < 1e-5


def test_an_unknown_breakage_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ArgumentError) as caught:
        breakage_by_name("gather-late")
    assert caught.value.headline == (
        "--break 'gather-late' is not known; known are gather-early, rank-major-order, identity-lens, rank-positions, "
        "other-layout, rope-twice, and list"
    )


@pytest.mark.parametrize(
    ("crash", "slots", "error", "code", "is_caught"),
    [
        ("", 0, 2e-7, "DSA106", False),
        ("", 0, 2e-5, "DSA106", True),
        ("", 0, math.nan, "DSA106", True),
        ("", 1, 0.0, "DSA106", True),
        ("RuntimeError: sizes", None, None, "DSA102", True),
        ("", 9, 1.2, "", False),
    ],
)
def test_a_breakage_is_caught_where_it_does_harm_beyond_the_bound_and_is_refused(
    crash: str, slots: int | None, error: float | None, code: str, is_caught: bool
) -> None:
    report = BreakReport("any", "zigzag", crash, slots, error, "development" if code else "", code, "")
    assert report.is_caught is is_caught


@pytest.mark.parametrize(("error", "shown"), [(math.inf, "inf"), (math.nan, "nan"), (0.5, 0.5), (None, None)])
def test_an_error_that_is_not_finite_is_text_in_json(error: float | None, shown: object) -> None:
    report = BreakReport("any", "zigzag", "", 0, error, "", "", "").as_json()
    assert json.loads(json.dumps(report, allow_nan=False))["output_error"] == shown
