"""Code against formulas on sampled batches: index tensors too, the smallest batch, and the same batches each time."""

from typing import Any

import pytest

from dsa_contracts.dsa.layout import Layout
from dsa_cp.layouts import Interleave, VllmReplicated, VllmZigzag, Zigzag, indices
from dsa_cp.tools.prove.agreement import NAME, compare, difference
from dsa_cp.tools.prove.results import Outcome
from dsa_cp.tools.prove.samples import Sample, samples


@pytest.mark.parametrize(
    "layout",
    [Zigzag(), Interleave(), Interleave(3), Interleave(64), VllmZigzag(), VllmReplicated()],
    ids=lambda layout: layout.name,
)
@pytest.mark.parametrize("cp_size", [2, 5])
def test_the_layouts_of_the_package_run_what_is_proven_of_them(layout: Layout, cp_size: int) -> None:
    found = compare(layout, cp_size)
    assert (found.obligation, found.outcome, found.requests_text) == (NAME, Outcome.MATCHED, "sampled")
    assert found.goals >= 50


BREAKS: list[tuple[str, Any, tuple[str, str, int | str, int | str]]] = [
    (
        "real_tokens",
        lambda start, stop, extend_len, ops: stop - start,
        ("the layout", "its index tensors", "raises BatchError: local_rows does not fit this batch", "those of its formulas"),
    ),
    ("padded_size", lambda rows, row_alignment, ops: rows + 1, ("the batch", "nnz_padded", 2, 1)),
    ("position_of", lambda prefix_len, token: token, ("request 0, token 0", "position", 0, 1)),
    ("causal_len_of", lambda position: position, ("request 0, token 0", "causal_len", 0, 1)),
]


@pytest.mark.parametrize(("name", "broken", "expected"), BREAKS, ids=[name for name, _, _ in BREAKS])
def test_index_tensors_that_are_not_what_was_proven_are_found(
    name: str, broken: Any, expected: tuple[str, str, int | str, int | str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Broken in the module that makes the tensors alone: the proofs know nothing of it.
    monkeypatch.setattr(indices, name, broken)
    found = compare(Zigzag(), 2).counterexample
    assert found is not None
    assert (found.about, found.what, found.says, found.right) == expected
    assert sum(found.padded_lens) <= 2


def test_the_batches_are_the_same_each_time_and_in_order_of_size() -> None:
    first = samples(4, tells_decodes=True)
    assert first == samples(4, tells_decodes=True)
    assert [each.order for each in first] == sorted(each.order for each in first)
    assert first[0] == Sample((1,), (0,), (1,), 1, (False,))


def test_some_batches_have_prefixes_padding_decodes_and_rows_for_more_than_one_round() -> None:
    found = samples(4, tells_decodes=True)
    assert any(any(each.prefix) for each in found)
    assert any(each.padded != each.extend for each in found)
    assert any(each.row_alignment > 1 for each in found)
    assert any(True in each.decodes and False in each.decodes for each in found)
    assert any(max(each.extend) > 64 * 4 for each in found)
    assert not any(any(each.decodes) for each in samples(4, tells_decodes=False))


def test_smaller_batches_are_smaller_in_one_respect() -> None:
    found = list(Sample((3, 1), (2, 0), (4, 1), 8, (False, True)).smaller())
    assert Sample((1,), (0,), (1,), 8, (True,)) in found
    assert Sample((3,), (2,), (4,), 8, (False,)) in found
    assert Sample((3, 1), (2, 0), (4, 1), 1, (False, True)) in found
    assert Sample((2, 1), (2, 0), (3, 1), 8, (False, True)) in found
    assert Sample((3, 1), (2, 0), (3, 1), 8, (False, True)) in found
    assert Sample((3, 1), (0, 0), (4, 1), 8, (False, True)) in found
    assert Sample((3, 1), (2, 0), (4, 1), 8, (False, False)) in found
    assert list(Sample((1,), (0,), (1,), 1, (False,)).smaller()) == []


def test_a_batch_on_which_both_agree_has_no_difference() -> None:
    assert difference(Zigzag(), 2, Sample((7, 3), (1, 0), (8, 3), 4, (False, False))) is None
