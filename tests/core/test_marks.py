"""Marks of brands against patterns of contracts."""

from typing import Any

import pytest

from dsa_contracts.core.brands import Kind
from dsa_contracts.core.marks import BF16, F32, Plain
from dsa_contracts.core.matching import substitute, unify
from dsa_contracts.dsa.states import Bf16Row, Fp8Row, Global, Local, Packed, Pool, RankMajor, Raw, Rotated, Sequence
from dsa_contracts.dsa.typevars import F, L, O, P, R
from dsa_cp.layouts import Zigzag, build_batch

LOCAL: Any = Local
GLOBAL: Any = Global
RANK_MAJOR: Any = RankMajor
PACKED: Any = Packed


@pytest.mark.parametrize(
    ("pattern", "value", "bound", "fits"),
    [
        (Plain, Plain, {}, True),
        (Plain, Raw, {}, False),
        (R, LOCAL[Zigzag], {"R": Local[Zigzag]}, True),
        (LOCAL[L], LOCAL[Zigzag], {"L": Zigzag}, True),
        (LOCAL[L], GLOBAL[Sequence], {}, False),
        (LOCAL[L], None, {}, True),
        (GLOBAL[O], GLOBAL[RANK_MAJOR[Zigzag]], {"O": RankMajor[Zigzag]}, True),
        (PACKED[F, P], PACKED[Fp8Row, Raw], {"F": Fp8Row, "P": Raw}, True),
        (PACKED[F, Rotated], PACKED[Fp8Row, Raw], {"F": Fp8Row}, False),
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
    assert not unify(PACKED[F, P], PACKED[Fp8Row, Raw], {"F": Bf16Row})
    assert substitute(PACKED[F, P], {"F": Bf16Row}) is None


def test_only_rows_that_depend_on_a_layout_name_it() -> None:
    batch = build_batch(Zigzag(), 1, 0, [3])
    texts = [batch.variant_of(rows) for rows in (LOCAL[Zigzag], GLOBAL[RANK_MAJOR[Zigzag]], GLOBAL[Sequence], Pool)]
    assert texts == ["zigzag", "zigzag", "", ""]


def test_kinds_that_differ_in_the_producer_alone_have_one_key() -> None:
    kinds = [Kind(Local[Zigzag], Raw, "zigzag", "a"), Kind(Local[Zigzag], Raw, "zigzag", "b"), Kind(Pool, Raw, "", "a")]
    assert kinds[0].key is kinds[1].key
    assert kinds[0].key is not kinds[2].key
