"""What others add to the core: own dtypes, dims, codes and groups; and entry points of installed distributions."""

import sys
from collections.abc import Callable, Iterator
from importlib import invalidate_caches
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import pytest
import torch
from torch import Tensor

from dsa_contracts.core import extensions
from dsa_contracts.core.comm import Group
from dsa_contracts.core.contract import contract, contract_of
from dsa_contracts.core.errors import CODES, ArgumentError, ContractDefinitionError, ContractError, RankError, add_codes
from dsa_contracts.core.extensions import Registry, load
from dsa_contracts.core.invariant import Call, Invariant
from dsa_contracts.core.marks import (
    E2M1X2,
    E5M2,
    E8M0,
    F32,
    I8,
    U8,
    Contiguous,
    Dim,
    DType,
    Plain,
    Rows,
    dim_name,
    dtype_text,
)
from dsa_contracts.core.runtime.stage import stage
from dsa_contracts.core.scope import Scope, forward
from dsa_contracts.core.tensors import Ten


class Cells(Dim):
    """Cells of the toy vocabulary."""


class Lanes(Dim):
    """Lanes of a cell; two kinds of cells in one scope may have their own."""

    varies = True


class Mine(Rows):
    """The rows of the toy vocabulary."""


class PackedFp4(DType):
    """Two fp4 codes in a byte of a uint8 tensor."""

    torch_dtype = torch.uint8
    short = "fp4-in-u8"


class F64(DType):
    """torch.float64, which the core has no mark for."""

    torch_dtype = torch.float64
    short = "float64"


N = TypeVar("N", bound=DType)


@pytest.fixture(autouse=True)
def codes() -> Iterator[None]:
    """The codes as they were, after each test."""
    before = dict(CODES)
    yield
    CODES.clear()
    CODES.update(before)


def refusal(function: Callable[..., Any], *args: Any) -> str:
    """The first line of the message that a call is refused with."""
    with pytest.raises(ContractError) as error:
        function(*args)
    return str(error.value).splitlines()[0]


def one_of(dtype: Any) -> Callable[..., Any]:
    """A stage that takes cells of a dtype and returns nothing."""

    def take(x: Any) -> None:
        """Cells come in one dtype."""

    take.__annotations__["x"] = Ten[Mine, Plain, dtype, Contiguous, Cells, Lanes]
    return stage(contract()(take))(lambda x: None)


DTYPES: dict[type[DType], torch.dtype] = {
    E5M2: torch.float8_e5m2,
    I8: torch.int8,
    E8M0: torch.float8_e8m0fnu,
    E2M1X2: torch.float4_e2m1fn_x2,
    F64: torch.float64,
    PackedFp4: torch.uint8,
}


@pytest.mark.parametrize("mark", DTYPES, ids=lambda mark: mark.short)
@pytest.mark.parametrize("other", [torch.float32, torch.int64, torch.bfloat16], ids=str)
def test_every_dtype_is_compared_whoever_defined_its_mark(mark: type[DType], other: torch.dtype) -> None:
    take = one_of(mark)
    take(torch.empty(2, 4, dtype=DTYPES[mark]))
    assert refusal(take, torch.empty(2, 4, dtype=other)) == (
        f"StageInputError DSA103: take: x is {dtype_text(other)}, not {mark.short}"
    )


def test_a_mark_of_ones_own_for_bytes_takes_bytes_and_the_mark_for_bytes_stays_theirs() -> None:
    assert dtype_text(torch.uint8) == "u8"
    one_of(PackedFp4)(torch.zeros(2, 4, dtype=torch.uint8))
    one_of(U8)(torch.zeros(2, 4, dtype=torch.uint8))


@contract()
def cast(x: Ten[Mine, Plain, N, Contiguous, Cells, Lanes], dtype: type[N]) -> None:
    """Cells are of the dtype that is named beside them."""


@stage(cast)
def bare_cast(x: Ten[Mine, Plain, N, Contiguous, Cells, Lanes], dtype: type[N]) -> None:
    """Take the cells."""


@pytest.mark.parametrize("mark", DTYPES, ids=lambda mark: mark.short)
def test_a_dtype_variable_takes_the_dtype_that_it_is_bound_to_and_no_other(mark: type[DType]) -> None:
    bare_cast(torch.empty(2, 4, dtype=DTYPES[mark]), mark)  # type: ignore[arg-type]
    assert refusal(bare_cast, torch.empty(2, 4), mark) == f"StageInputError DSA103: cast: x is f32, not {mark.short}"


def make_lanes() -> type[Dim]:
    class Lanes(Dim):
        """Another vocabulary's lanes."""

    return Lanes


def test_two_dims_of_one_class_name_are_two() -> None:
    first, second = make_lanes(), make_lanes()

    assert dim_name(Lanes) == "lanes"
    assert dim_name(first) == "tests_core_test_extensions_lanes"
    assert dim_name(second) == "tests_core_test_extensions_lanes_2"


def test_dims_of_one_class_name_may_differ_in_one_tensor() -> None:
    other = make_lanes()

    def square(x: Any) -> None:
        """Lanes of one vocabulary by lanes of another."""

    square.__annotations__["x"] = Ten[Mine, Plain, F32, Contiguous, Lanes, other]  # type: ignore[valid-type]
    take = stage(contract()(square))(lambda x: None)
    take(torch.zeros(2, 3))

    def same(x: Any) -> None:
        """Lanes of one vocabulary, twice."""

    same.__annotations__["x"] = Ten[Mine, Plain, F32, Contiguous, Lanes, Lanes]
    assert refusal(stage(contract()(same))(lambda x: None), torch.zeros(2, 3)) == (
        "StageInputError DSA102: same: x has shape [2, 3], which an earlier argument contradicts"
    )


def test_a_class_that_is_defined_again_keeps_its_name() -> None:
    source = "class Cups(Dim):\n    pass\n"
    spaces = [{"Dim": Dim, "__name__": "tea"}, {"Dim": Dim, "__name__": "tea"}, {"Dim": Dim, "__name__": "coffee"}]
    for space in spaces:
        exec(source, space)
    assert [dim_name(space["Cups"]) for space in spaces] == ["cups", "cups", "coffee_cups"]  # type: ignore[arg-type]


def test_a_dim_may_state_its_name_if_it_is_free_and_an_identifier() -> None:
    class Bars(Dim):
        written = "bars_of_gold"

    class BarsAgain(Bars):
        pass

    assert (dim_name(Bars), dim_name(BarsAgain)) == ("bars_of_gold", "bars_again")
    with pytest.raises(ContractDefinitionError) as taken:
        type("Other", (Dim,), {"written": "bars_of_gold"})
    assert str(taken.value).splitlines() == [
        "ContractDefinitionError DSA001: Other is written bars_of_gold, as " + f"{Bars.__module__}.{Bars.__qualname__} is",
        "  try       another name",
    ]
    with pytest.raises(ContractDefinitionError, match="Odd is written 'two words', which is no identifier"):
        type("Odd", (Dim,), {"written": "two words"})


@contract()
def look(x: Ten[Mine, Plain, F32, Contiguous, Cells, Lanes]) -> None:
    """Cells are looked at."""


@stage(look)
def bare_look(x: Ten[Mine, Plain, F32, Contiguous, Cells, Lanes]) -> None:
    """Look."""


def test_a_dim_that_varies_differs_between_the_calls_of_a_scope_and_another_does_not() -> None:
    check: Any = bare_look
    with forward(Scope({Cells: 2})):
        check(torch.zeros(2, 3))
        check(torch.zeros(2, 5))
        assert refusal(check, torch.zeros(4, 3)) == "StageInputError DSA102: look: x has 4 rows, cells is 2, bound by scope"


def test_an_own_code_is_what_a_refused_call_has() -> None:
    add_codes({"TOY101": "a sum of cells is not what the toy promises"}, {"TOY101": "count again"})

    def sums_to_nothing(call: Call) -> str | None:
        return None if float(call.tensor("x").sum()) == 0 else "x sums to something"

    fact = Invariant("sums_to_nothing", "TOY101", "x", "x sums to nothing", False, sums_to_nothing)

    def watch(x: Ten[Mine, Plain, F32, Contiguous, Cells, Lanes]) -> None:
        """Cells that sum to nothing."""

    check: Any = stage(contract(requires=(fact,))(watch))(lambda x: None)
    check(torch.zeros(2, 2))
    assert refusal(check, torch.ones(2, 3)) == "StageInputError TOY101: watch: x sums to something"
    assert CODES["TOY101"] == "a sum of cells is not what the toy promises"


def test_an_invariant_with_a_code_that_nobody_knows_is_refused_where_it_is_made() -> None:
    with pytest.raises(ContractDefinitionError) as error:
        Invariant("is_odd", "TOY999", "x", "x is odd", False, lambda call: None)
    assert str(error.value) == (
        "ContractDefinitionError DSA001: 'TOY999' is no known code\n  try       add_codes in its vocabulary"
    )


@runtime_checkable
class Shouting(Group, Protocol):
    """A group of a protocol of its own, without a gather."""

    def shout(self, x: Tensor) -> None:
        """Tell everybody."""


class OneShouter:
    size, rank = 1, 0

    def __init__(self) -> None:
        self.said: list[str] = []

    def agree(self, fingerprint: str) -> None:
        self.said.append(fingerprint)

    def fail(self, reason: str) -> RankError:
        self.said.append(f"failed: {reason.splitlines()[0]}")
        return RankError("rank 0 failed", code="DSA502")

    def done(self) -> None: ...

    def shout(self, x: Tensor) -> None: ...


@contract()
def tell(x: Ten[Mine, Plain, F32, Contiguous, Cells, Lanes], group: Shouting) -> None:
    """All ranks know the cells."""


@stage(tell)
def bare_tell(x: Ten[Mine, Plain, F32, Contiguous, Cells, Lanes], group: Shouting) -> None:
    """Shout them."""
    group.shout(x)


def test_a_group_of_ones_own_protocol_makes_a_collective_whose_ranks_agree() -> None:
    group, check = OneShouter(), bare_tell
    call: Any = check
    assert contract_of(check).comm_param == "group"

    call(torch.zeros(2, 3), group)
    assert group.said == ["tell layer=None f32[rows, 3] "]

    with pytest.raises(RankError):
        call(torch.zeros(2, 3, dtype=torch.int32), group)
    assert group.said[1:] == ["failed: StageInputError DSA103: tell: x is i32, not f32"]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Installs a distribution that names objects under groups; the names are gone after the test."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def install(name: str, version: str, module: str, points: str) -> None:
        folder = tmp_path / f"{name}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
        (folder / "entry_points.txt").write_text(points, encoding="utf-8")
        (tmp_path / f"{name}.py").write_text(module, encoding="utf-8")
        invalidate_caches()
        load.cache_clear()

    load.cache_clear()
    yield install
    load.cache_clear()
    for module in set(sys.modules) - before:
        if module.startswith("toy_"):
            del sys.modules[module]


UNUSABLE = "adds to dsa_contracts.layouts, cannot be used"


def numbers() -> Registry[int]:
    return Registry("dsa_contracts.layouts", {"one": 1}, what="number", is_one=lambda found: isinstance(found, int))


def test_what_a_distribution_adds_is_found_by_name_and_not_iterated_over(installed: Callable[..., None]) -> None:
    installed("toy_numbers", "1.0", "TWO = 2\n", "[dsa_contracts.layouts]\ntwo = toy_numbers:TWO\n")

    registry = numbers()
    assert (registry["two"], registry.named("two"), "two" in registry, "three" in registry) == (2, 2, True, False)
    assert (list(registry), registry.known()) == (["one"], ("one", "two"))
    with pytest.raises(ArgumentError) as error:
        registry.named("three")
    assert str(error.value) == "ArgumentError DSA602: number 'three' is not known; known are one, two"
    with pytest.raises(KeyError):
        registry["three"]


def test_a_name_of_the_packages_own_is_found_without_reading_what_is_installed(installed: Callable[..., None]) -> None:
    installed("toy_broken", "0.3", "raise RuntimeError('no GPU\\nhere')\n", "[dsa_contracts.layouts]\ntwo = toy_broken:TWO\n")

    assert numbers()["one"] == 1
    with pytest.raises(ContractDefinitionError) as error:
        numbers()["two"]
    assert str(error.value).splitlines() == [
        f"ContractDefinitionError DSA001: two, which toy_broken 0.3 {UNUSABLE}: RuntimeError: no GPU here",
        "  got       two = toy_broken:TWO",
        "  expected  layouts, each with its segments and the formulas that are proven of it",
        "  try       repair toy_broken 0.3, or uninstall it",
    ]


@pytest.mark.parametrize(
    ("points", "reason"),
    [
        (
            "one = toy_odd:TWO",
            "one, which toy_odd 2.0 adds to dsa_contracts.layouts, cannot be used: that name is taken already",
        ),
        ("two = toy_odd:NAME", "two, which toy_odd 2.0 adds to dsa_contracts.layouts, cannot be used: it is str"),
        (
            "two = toy_odd:MISSING",
            f"two, which toy_odd 2.0 {UNUSABLE}: AttributeError: module 'toy_odd' has no attribute 'MISSING'",
        ),
    ],
)
def test_an_entry_point_that_cannot_be_used_says_whose_it_is(
    installed: Callable[..., None], points: str, reason: str
) -> None:
    installed("toy_odd", "2.0", "TWO, NAME = 2, 'x'\n", f"[dsa_contracts.layouts]\n{points}\n")

    assert refusal(numbers().named, "two") == f"ContractDefinitionError DSA001: {reason}"


def test_two_distributions_with_one_name_are_told_apart(installed: Callable[..., None]) -> None:
    installed("toy_left", "1.0", "TWO = 2\n", "[dsa_contracts.layouts]\ntwo = toy_left:TWO\n")
    installed("toy_right", "1.1", "TWO = 22\n", "[dsa_contracts.layouts]\ntwo = toy_right:TWO\n")

    text = refusal(load, "dsa_contracts.layouts")
    assert "two, which toy_" in text
    assert text.endswith("has that name already")


def test_a_vocabulary_is_imported_when_a_code_is_not_known(installed: Callable[..., None]) -> None:
    module = (
        "from dsa_contracts.core.errors import add_codes\nadd_codes({'TOY777': 'a toy is broken'}, {'TOY777': 'mend it'})\n"
    )
    installed("toy_words", "1.0", module, "[dsa_contracts.vocabularies]\ntoys = toy_words\n")

    assert "TOY777" not in CODES
    assert str(ContractError("broken", code="TOY777")) == "ContractError TOY777: broken"


def test_there_is_no_group_of_another_name() -> None:
    assert refusal(load, "dsa_contracts.colours") == (
        f"ArgumentError DSA602: 'dsa_contracts.colours' is no group of entry points; there are {', '.join(extensions.GROUPS)}"
    )
