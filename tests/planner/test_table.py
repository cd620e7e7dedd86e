"""Every combination has a valid plan or an error with a remedy, and the page of the docs is made from them."""

from collections import Counter
from pathlib import Path

import pytest

from dsa_contracts.dsa.codes import PlanError
from dsa_cp.layer.placements import PLACEMENTS
from dsa_cp.planner import Plan
from dsa_cp.planner.plan_files import plan_from_json
from dsa_cp.planner.table import Row, all_rows, plans_page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "plans.md"


@pytest.fixture(scope="module")
def rows() -> tuple[Row, ...]:
    """All combinations."""
    return all_rows()


def test_the_page_in_the_docs_is_what_is_generated_now() -> None:
    assert PAGE.read_text(encoding="utf-8") == plans_page(), "run: dsa-cp plan --table > docs/plans.md"


def test_every_combination_has_a_plan_with_a_function_or_an_error_with_a_remedy(rows: tuple[Row, ...]) -> None:
    assert len(rows) == 7 * 7 * 3 * 4 * 2 * 2
    for row in rows:
        if isinstance(row.made, Plan):
            assert row.made.placement in PLACEMENTS
            assert row.made.cost.wire_bytes == (0 if row.options.cp_size == 1 else row.made.steps[-3].bytes_per_token or 0)
        else:
            assert row.made.code == "DSA401"
            assert dict(row.made.facts)["try"]


def test_a_plan_of_every_kind_loads_from_its_json(rows: tuple[Row, ...]) -> None:
    kinds = {(made.name, made.options.cp_size): made for row in rows if isinstance(made := row.made, Plan)}
    assert len(kinds) > 20
    for made in kinds.values():
        assert plan_from_json(made.model_dump_json()) == made


def test_the_layout_and_the_prefix_never_change_the_placement_into_a_replicated_pool(rows: tuple[Row, ...]) -> None:
    seen: dict[tuple[str, str, str, int], set[str]] = {}
    for row in rows:
        options = row.options
        key = (options.prefill_backend, options.decode_backend, options.kv_format, options.cp_size)
        seen.setdefault(key, set()).add(row.made.headline if isinstance(row.made, PlanError) else row.made.placement)
    assert all(len(outcomes) == 1 for outcomes in seen.values())


def test_each_row_format_has_one_placement(rows: tuple[Row, ...]) -> None:
    found = Counter((row.options.kv_format, row.made.placement) for row in rows if isinstance(row.made, Plan))
    assert sorted(found) == [
        ("bf16", "rope_gather"),
        ("fp8", "rope_quantize_gather"),
        ("fp8_656", "rope_quantize_rows_gather"),
    ]


def test_every_difference_with_upstream_has_a_reason(rows: tuple[Row, ...]) -> None:
    for row in rows:
        for found in row.comparisons:
            assert bool(found.reason) is (found.kind not in ("same", "refused by both"))
