"""The one matcher: marks that derive from each other, bounds of variables, and for each kind of clash its words."""

from dataclasses import replace
from typing import Any, Generic, TypeVar, get_args

import pytest

from dsa_contracts.core.marks import BF16, F32, I64, U8, Contiguous, DType, Plain, Rows, State, UnitLast
from dsa_contracts.core.matching import (
    Clash,
    bound_of,
    clash_of,
    concrete,
    distance,
    is_within,
    shown,
    substitute,
    unify,
    unify_parameters,
)
from dsa_contracts.core.tensors import TensorSpec, make_spec
from tests.support.toy import (
    All,
    B,
    Blocks,
    Box,
    Boxed,
    BoxMark,
    ByRunner,
    C,
    Cold,
    D,
    Ds,
    InOrder,
    LargeBox,
    Mine,
    N,
    O,
    Order,
    Own,
    R,
    Seats,
    SmallBox,
    T,
    Total,
    Turns,
    V,
    Warm,
    Warmth,
    Way,
    Width,
)

MINE: Any = Mine
ALL: Any = All
BOXED: Any = Boxed
BY_RUNNER: Any = ByRunner
BOX: Any = Box
DIMS: Any = get_args(tuple[*Ds])  # type: ignore[valid-type]


class SlowTurns(Turns):
    """A way that is a kind of another."""


class Frozen(Cold):
    """A state that is a kind of another."""


@pytest.mark.parametrize(
    ("pattern", "value", "fits"),
    [
        (Cold, Frozen, True),
        (Frozen, Cold, False),
        (UnitLast, Contiguous, True),
        (Contiguous, UnitLast, False),
        (MINE[Turns], MINE[SlowTurns], True),
        (MINE[SlowTurns], MINE[Turns], False),
        (MINE[V], MINE[SlowTurns], True),
        (Mine, MINE[Turns], False),
        (MINE[Turns], Mine, False),
        (Cold, None, True),
        (Cold, "Cold", False),
        (R, ALL[InOrder], True),
        (R, Cold, False),
        (T, Warm, True),
        (T, Plain, False),
        (D, F32, True),
        (N, Seats, True),
        (N, Total, False),
    ],
)
def test_a_mark_fits_what_it_is_derived_from_and_a_variable_within_its_bound(
    pattern: object, value: object, fits: bool
) -> None:
    assert unify(pattern, value, {}) is fits


def test_a_variable_keeps_the_first_mark_even_where_a_later_one_derives_from_it() -> None:
    bound: dict[str, object] = {}
    assert unify(MINE[V], MINE[Turns], bound)
    assert not unify(MINE[V], MINE[SlowTurns], bound)
    assert unify(MINE[V], MINE[Turns], bound)
    assert bound == {"V": Turns}


def test_type_parameters_of_a_value_are_bound_by_place() -> None:
    bound: dict[str, object] = {}
    assert unify_parameters(BOX[B, D], (SmallBox, BF16), bound)
    assert bound == {"B": SmallBox, "D": BF16}
    assert not unify_parameters(BOX[B, D], (LargeBox, BF16), bound)
    assert unify_parameters(Box[LargeBox, BF16], (LargeBox, BF16), {})
    assert not unify_parameters(Box[LargeBox, BF16], (LargeBox, F32), {})
    assert unify_parameters(float, (), {})


class Later(Generic[V]):
    """Comes after a variable whose bound is its name in quotes."""


QUOTED = TypeVar("QUOTED", bound="Later")  # type: ignore[type-arg]
FREE = TypeVar("FREE")


@pytest.mark.parametrize(
    ("variable", "limit"),
    [
        (V, Way),
        (O, Order),
        (T, Warmth),
        (B, BoxMark),
        (R, Rows),
        (D, DType),
        (C, UnitLast),
        (QUOTED, Later),
        (FREE, object),
    ],
)
def test_a_bound_in_quotes_is_looked_up_where_the_variable_was_made(variable: TypeVar, limit: type) -> None:
    assert bound_of(variable) is limit


def test_a_mark_is_within_its_variables_bound_or_one_of_its_constraints() -> None:
    assert is_within(SlowTurns, V)
    assert is_within(BY_RUNNER[Turns], O)
    assert is_within(Later[Turns], QUOTED)
    assert not is_within(Cold, V)
    assert is_within(Own, N)
    assert not is_within(Width, N)


@pytest.mark.parametrize(
    ("pattern", "bound", "text", "mark"),
    [
        (V, {}, "V", None),
        (V, {"V": Turns}, "Turns", Turns),
        (ALL[BY_RUNNER[V]], {"V": Turns}, "All[ByRunner[Turns]]", ALL[BY_RUNNER[Turns]]),
        (BOXED[B, T], {"B": SmallBox}, "Boxed[SmallBox, T]", None),
        (BOXED[B, T], {"B": SmallBox, "T": Warm}, "Boxed[SmallBox, Warm]", BOXED[SmallBox, Warm]),
        (Cold, {"T": Warm}, "Cold", Cold),
    ],
)
def test_a_pattern_is_shown_and_made_with_what_is_bound(pattern: object, bound: Any, text: str, mark: object) -> None:
    assert shown(pattern, bound) == text
    assert substitute(pattern, bound) == mark


PATTERN = make_spec((MINE[V], Cold, BF16, Contiguous, N, Width))
VALUE = TensorSpec(MINE[Turns], Cold, BF16, Contiguous, (Own, Width))
CLASHES: dict[str, tuple[dict[str, Any], Clash]] = {
    "rows": ({"rows": ALL[InOrder]}, Clash("rows", "holds All[InOrder] rows, not Mine[V]")),
    "state": ({"state": Warm}, Clash("state", "is Warm, not Cold")),
    "dtype": ({"dtype": F32}, Clash("dtype", "is f32, not bf16")),
    "strides": ({"strides": UnitLast}, Clash("strides", "has strides UnitLast, not Contiguous")),
    "dims": ({"dims": (Total, Width)}, Clash("dims", "is [total width], not [N width]")),
    "a dim less": ({"dims": (Own,)}, Clash("dims", "is [own], not [N width]")),
    "a dim more": ({"dims": (Own, Width, Width)}, Clash("dims", "is [own width width], not [N width]")),
    "rows before all others": (
        {"rows": ALL[InOrder], "state": Warm, "dims": ()},
        Clash("rows", "holds All[InOrder] rows, not Mine[V]"),
    ),
}


@pytest.mark.parametrize("fault", CLASHES)
def test_each_kind_of_clash_has_its_words(fault: str) -> None:
    changes, clash = CLASHES[fault]
    assert clash_of(PATTERN, replace(VALUE, **changes), {}) == clash


def test_the_codes_of_clashes_are_those_of_run_time() -> None:
    codes = {clash.kind: clash.code for _, clash in CLASHES.values()}
    assert codes == {"rows": "DSA106", "state": "DSA107", "dtype": "DSA103", "strides": "DSA104", "dims": "DSA102"}


@pytest.mark.parametrize(
    "changes",
    [{}, {"state": Frozen}, {"rows": None}, {"dims": (Seats, Width)}, {"rows": MINE[Blocks]}],
)
def test_what_fits_binds_its_variables(changes: dict[str, Any]) -> None:
    bound: dict[str, object] = {}
    value = replace(VALUE, **changes)
    assert clash_of(PATTERN, value, bound) is None
    assert bound.get("N") is value.dims[0]
    assert ("V" in bound) == (value.rows is not None)


def test_what_is_bound_is_shown_in_a_clash() -> None:
    assert clash_of(PATTERN, VALUE, {"V": Blocks}) == Clash("rows", "holds Mine[Turns] rows, not Mine[Blocks]")
    assert clash_of(PATTERN, VALUE, {"N": Seats}) == Clash("dims", "is [own width], not [N width]")
    dtype = replace(PATTERN, dtype=D)
    assert clash_of(dtype, VALUE, {"D": F32}) == Clash("dtype", "is bf16, not f32")
    assert clash_of(dtype, replace(VALUE, dtype=I64), {}) is None


OPEN = make_spec((R, Plain, U8, UnitLast, N, *DIMS))


def test_open_dims_take_the_rest_and_keep_it_for_the_call() -> None:
    value = TensorSpec(ALL[InOrder], Plain, U8, Contiguous, (Own, Width, Total))
    bound: dict[str, object] = {}
    assert clash_of(OPEN, value, bound) is None
    assert bound["*Ds"] == (Width, Total)
    assert clash_of(OPEN, replace(value, dims=(Own, Width)), bound) == Clash("dims", "is [own width], not [N *Ds]")
    assert clash_of(OPEN, value, bound) is None


def test_a_spec_is_made_concrete_and_what_is_not_bound_stays_as_written() -> None:
    assert concrete(PATTERN, {"V": Turns, "N": Own}) == VALUE
    assert concrete(PATTERN, {}) == PATTERN
    assert concrete(OPEN, {"*Ds": (Width, Total)}).dims == (N, Width, Total)


@pytest.mark.parametrize(
    ("changes", "places"),
    [({}, 0), ({"state": Warm}, 1), ({"state": Warm, "dtype": F32}, 2), ({"dims": ()}, 4), ({"rows": State}, 1)],
)
def test_a_distance_counts_places_and_dims_most(changes: dict[str, Any], places: int) -> None:
    bound: dict[str, object] = {}
    assert distance(PATTERN, replace(VALUE, **changes), bound) == places
    assert bound == {}
