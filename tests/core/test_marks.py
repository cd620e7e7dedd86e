"""Marks of brands against patterns of contracts."""

from typing import Any

import pytest

from dsa_contracts.core.brands import Kind
from dsa_contracts.core.marks import BF16, F32, Plain
from dsa_contracts.core.matching import substitute, unify
from tests.support.toy import (
    All,
    B,
    Boxed,
    ByRunner,
    Cold,
    InOrder,
    LargeBox,
    Mine,
    O,
    R,
    Shelf,
    SmallBox,
    T,
    Turns,
    V,
    Warm,
    crew_of,
)

MINE: Any = Mine
ALL: Any = All
BY_RUNNER: Any = ByRunner
BOXED: Any = Boxed


@pytest.mark.parametrize(
    ("pattern", "value", "bound", "fits"),
    [
        (Plain, Plain, {}, True),
        (Plain, Cold, {}, False),
        (R, MINE[Turns], {"R": Mine[Turns]}, True),
        (MINE[V], MINE[Turns], {"V": Turns}, True),
        (MINE[V], ALL[InOrder], {}, False),
        (MINE[V], None, {}, True),
        (ALL[O], ALL[BY_RUNNER[Turns]], {"O": ByRunner[Turns]}, True),
        (BOXED[B, T], BOXED[LargeBox, Cold], {"B": LargeBox, "T": Cold}, True),
        (BOXED[B, Warm], BOXED[LargeBox, Cold], {"B": LargeBox}, False),
        (BF16, F32, {}, False),
    ],
)
def test_a_mark_fits_a_pattern_and_binds_its_variables(pattern: object, value: object, bound: Any, fits: bool) -> None:
    found: dict[str, object] = {}
    assert unify(pattern, value, found) is fits
    assert found == bound
    if fits and value is not None:
        assert substitute(pattern, found) == value


def test_a_variable_stands_for_one_mark_in_a_call() -> None:
    assert not unify(BOXED[B, T], BOXED[LargeBox, Cold], {"B": SmallBox})
    assert substitute(BOXED[B, T], {"B": SmallBox}) is None


def test_only_rows_that_depend_on_a_layout_name_it() -> None:
    crew = crew_of(runners=1, total=3)
    texts = [crew.variant_of(rows) for rows in (MINE[Turns], ALL[BY_RUNNER[Turns]], ALL[InOrder], Shelf)]
    assert texts == ["turns", "turns", "", ""]


def test_kinds_that_differ_in_the_producer_alone_have_one_key() -> None:
    kinds = [Kind(Mine[Turns], Cold, "turns", "a"), Kind(Mine[Turns], Cold, "turns", "b"), Kind(Shelf, Cold, "", "a")]
    assert kinds[0].key is kinds[1].key
    assert kinds[0].key is not kinds[2].key
