"""`@contract`: the record of a stage, read off its stub, and the stubs that it refuses."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from dsa_contracts.core.contract import contract, contract_of, make_param
from dsa_contracts.core.errors import ContractDefinitionError
from dsa_contracts.core.marks import BF16, Contiguous, Plain
from dsa_contracts.core.scope import Scope
from dsa_contracts.core.tensors import Ten
from tests.support.toy import TURN, Crew, Mine, Own, V, Width, bare_turn, checked_turn, turn

MINE: Any = Mine
ANNOTATION: Any = Ten
ROWS: Any = ANNOTATION[MINE[V], Plain, BF16, Contiguous, Own, Width]


def definition_error(stub: Callable[..., object], **options: Any) -> str:
    with pytest.raises(ContractDefinitionError) as error:
        contract(**options)(stub)
    return str(error.value).removeprefix("ContractDefinitionError DSA001: ")


def without_annotation(x, crew: Crew[V]) -> None: ...  # type: ignore[no-untyped-def]


def any_tensor(x: Tensor, crew: Crew[V]) -> None: ...


def keyword_only(*, x: int, crew: Crew[V]) -> None: ...


def many(*x: int, crew: Crew[V]) -> None: ...


def unresolved(x: "Missing", crew: Crew[V]) -> None: ...  # type: ignore[name-defined] # noqa: F821


def returns_nothing(crew: Crew[V]) -> None: ...


def returns_a_pair(crew: Crew[V]) -> tuple[int, int]:
    raise NotImplementedError


ONE_LINE = "\n  try       "
AT_RUN_TIME = "import the name at run time, and not under TYPE_CHECKING alone"


@pytest.mark.parametrize(
    ("stub", "options", "message"),
    [
        (without_annotation, {}, "without_annotation: x has no annotation"),
        (any_tensor, {}, f"any_tensor: x is any Tensor{ONE_LINE}say which, with Ten"),
        (many, {}, "many: x is variadic positional, not an ordinary or keyword-only one"),
        (
            unresolved,
            {},
            f"an annotation of unresolved does not resolve: name 'Missing' is not defined{ONE_LINE}{AT_RUN_TIME}",
        ),
        (returns_nothing, {"returns": ("y",)}, "returns_nothing returns 0 values, and 1 are named"),
        (returns_a_pair, {"returns": ("y",)}, "returns_a_pair returns 2 values, and 1 are named"),
        (returns_a_pair, {}, "returns_a_pair returns 2 values, and 0 are named"),
    ],
)
def test_a_stub_that_is_not_well_formed_is_refused(stub: Callable[..., object], options: Any, message: str) -> None:
    assert definition_error(stub, **options) == message


def test_a_stub_has_at_most_one_scope() -> None:
    def lonely(x: int) -> None: ...

    def torn(crew: Crew[V], other: Scope) -> None: ...

    assert contract()(lonely) is lonely
    assert definition_error(torn) == "torn has several scopes: crew, other; dims are bound for one"


def test_stubs_near_those_are_contracts() -> None:
    assert contract()(returns_nothing) is returns_nothing
    assert contract()(keyword_only) is keyword_only
    assert contract(returns=("y", "z"))(returns_a_pair) is returns_a_pair
    assert [record.name for record in contract_of(returns_a_pair).returns] == ["y", "z"]


LATE = """
from __future__ import annotations
from typing import TYPE_CHECKING
from dsa_contracts.core.contract import contract
from tests.support.toy import Crew, V
if TYPE_CHECKING:
    from dsa_contracts.core.tensors import Ten

@contract()
def late(x: Ten, crew: Crew[V]) -> None: ...
"""


def imported(path: Path, text: str) -> object:
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_name_that_only_the_type_checker_imports_is_an_error_at_import(tmp_path: Path) -> None:
    with pytest.raises(ContractDefinitionError) as error:
        imported(tmp_path / "late_module.py", LATE)
    assert str(error.value) == (
        "ContractDefinitionError DSA001: an annotation of late does not resolve: name 'Ten' is not defined\n"
        "  try       import the name at run time, and not under TYPE_CHECKING alone"
    )


def test_late_annotations_of_names_that_exist_at_run_time_are_read(tmp_path: Path) -> None:
    text = LATE.replace("if TYPE_CHECKING:\n    ", "").replace("x: Ten", "x: int")
    module: Any = imported(tmp_path / "early_module.py", text)
    assert contract_of(module.late).names == ("x", "crew")


def test_the_record_is_what_the_stub_says() -> None:
    found = contract_of(turn)
    assert found.stub is turn
    assert (found.name, found.names, found.comm_param) == ("turn", ("x", "positions", "scale", "crew"), None)
    assert found.location == TURN == f"tests/support/toy.py:{turn.__code__.co_firstlineno}"
    assert found.dim_names == {"N", "width"}
    assert (found.advice_for("DSA107"), found.advice_for("DSA102")) == ("turn once", "")
    assert [(record.name, record.spec is not None) for record in (*found.params, *found.returns)] == [
        ("x", True),
        ("positions", True),
        ("scale", False),
        ("crew", False),
        ("turned", True),
    ]


def test_an_optional_tensor_keeps_its_spec() -> None:
    record = make_param("x", ROWS | None)
    assert record.is_optional
    assert record.spec is not None
    assert not make_param("x", ROWS).is_optional
    assert make_param("x", int | None).spec is None
    assert make_param("x", ROWS | int | None).spec is None


def test_the_contract_of_an_implementation_is_that_of_its_stub_with_and_without_checks() -> None:
    assert contract_of(checked_turn()) is contract_of(turn)
    assert contract_of(bare_turn) is contract_of(turn)


def test_a_function_that_nothing_binds_has_no_contract() -> None:
    with pytest.raises(ContractDefinitionError) as error:
        contract_of(definition_error)
    assert str(error.value) == ("ContractDefinitionError DSA001: definition_error is not decorated with @contract or @stage")
