"""`@stage`: how a call is made, and what of an implementation it refuses."""

from collections.abc import Callable
from typing import Any

import pytest

from dsa_contracts.core.contract import contract
from dsa_contracts.core.errors import ContractDefinitionError
from dsa_contracts.core.marks import BF16, F32, I64, Contiguous, Plain, UnitLast
from dsa_contracts.core.modes import Mode
from dsa_contracts.core.runtime.binding import place_of
from dsa_contracts.core.runtime.stage import stage, unchecked_function
from dsa_contracts.core.tensors import Ten
from tests.support.messages import contract_and_ran, refusal
from tests.support.toy import (
    TURN,
    All,
    Blocks,
    Box,
    C,
    Crew,
    D,
    Ds,
    InOrder,
    LargeBox,
    M,
    Mine,
    N,
    R,
    SmallBox,
    Turns,
    V,
    Warm,
    Width,
    args_of,
    bare_turn,
    boxed,
    checked_turn,
    crew_of,
    mine,
    rows_of,
    turn,
    turn_with,
)


def test_arguments_may_be_given_by_name_in_any_order() -> None:
    crew, function = crew_of(), checked_turn()
    x, positions, scale, _ = args_of(crew)
    by_name = function(crew=crew, scale=scale, positions=positions, x=x)
    mixed = function(x, positions, crew=crew, scale=scale)
    assert by_name.tolist() == mixed.tolist() == [[2.0, 2.0]] * 3
    assert crew.log.calls == {"turn": 2}


CALLED_WRONG = (
    f"{contract_and_ran(checked_turn())}"
    "\n  try       pass every argument that the contract names, each of the type that it names"
)
WANTED = (
    f"\n  expected  x, positions, scale, crew\n{contract_and_ran(checked_turn())}"
    "\n  try       pass every argument that the contract names, each of the type that it names"
)


def test_missing_unknown_doubled_and_too_many_arguments_are_refused_by_name() -> None:
    crew, function = crew_of(), checked_turn()
    args = args_of(crew)
    missing = refusal(function, *args[:2], crew=crew)
    assert missing == f"StageInputError DSA101: turn: missing a required argument: 'scale'{WANTED}"
    unknown = refusal(function, *args, more=1)
    assert unknown == f"StageInputError DSA101: turn: got an unexpected keyword argument 'more'{WANTED}"
    doubled = refusal(function, *args, x=args[0])
    assert doubled == f"StageInputError DSA101: turn: multiple values for argument 'x'{WANTED}"
    too_many = refusal(function, *args, 5)
    assert too_many == f"StageInputError DSA101: turn: too many positional arguments{WANTED}"


@pytest.mark.parametrize("value", [None, "crew", Crew])
def test_a_crew_is_needed(value: object) -> None:
    text = refusal(checked_turn(), *args_of(crew_of())[:3], value)
    kind = type(value).__name__
    assert text == f"StageInputError DSA101: turn: crew is {kind}\n  expected  Crew\n{CALLED_WRONG}"


def test_an_int_is_a_float_as_it_is_for_the_type_checker_and_a_text_is_not() -> None:
    crew, function = crew_of(), checked_turn()
    assert function(*args_of(crew, scale=3)).tolist() == [[3.0, 3.0]] * 3
    assert refusal(function, *args_of(crew, scale="3")) == (
        "StageInputError DSA101: turn: scale is str\n"
        "  expected  float\n"
        "  got       str '3'\n"
        "  where     runner=0 of 2, turns\n"
        f"{CALLED_WRONG}"
    )


@contract(returns=("y",))
def with_default(
    x: Ten[Mine[V], Plain, BF16, UnitLast, N, Width], crew: Crew[V], factor: float = 2.0
) -> Ten[Mine[V], Plain, BF16, Contiguous, N, Width]:
    raise NotImplementedError


def test_a_default_is_filled_in() -> None:
    @stage(with_default, mode=Mode.DEVELOPMENT)
    def scaled(x: Any, crew: Crew[Any], factor: float = 2.0) -> Any:
        return x * factor

    crew = crew_of()
    x = mine(rows_of(), Plain, crew)
    assert scaled(x, crew).tolist() == [[2.0, 2.0]] * 3
    assert scaled(x, crew, factor=3.0).tolist() == [[3.0, 3.0]] * 3


def refused_implementation(stub: Callable[..., Any], function: Callable[..., Any]) -> str:
    with pytest.raises(ContractDefinitionError) as error:
        stage(stub, mode=Mode.PRODUCTION)(function)
    return str(error.value)


def test_an_implementation_with_other_parameters_is_refused_in_every_mode() -> None:
    def renamed(x: Any, position: Any, scale: Any, crew: Any) -> Any: ...

    assert refused_implementation(turn, renamed) == (
        "ContractDefinitionError DSA002: renamed is not an implementation of turn\n"
        "  expected  x, positions, scale, crew\n"
        "  got       x, position, scale, crew\n"
        f"  contract  {TURN}\n"
        f"  ran       {place_of(renamed)}\n"
        "  try       give the implementation the parameters of its contract, in their order"
    )


def test_parameters_in_another_order_one_more_or_another_default_are_refused() -> None:
    def swapped(positions: Any, x: Any, scale: Any, crew: Any) -> Any: ...

    def longer(x: Any, positions: Any, scale: Any, crew: Any, more: int = 0) -> Any: ...

    def other_default(x: Any, crew: Any, factor: float = 1.0) -> Any: ...

    assert "\n  got       positions, x, scale, crew\n" in refused_implementation(turn, swapped)
    assert "\n  got       x, positions, scale, crew, more=0\n" in refused_implementation(turn, longer)
    text = refused_implementation(with_default, other_default)
    assert "\n  expected  x, crew, factor=2.0\n  got       x, crew, factor=1.0\n" in text


def test_a_stage_is_bound_to_a_contract_and_to_nothing_else() -> None:
    with pytest.raises(ContractDefinitionError) as error:
        stage(rows_of)
    assert str(error.value) == "ContractDefinitionError DSA001: rows_of is not decorated with @contract or @stage"


def test_unchecked_function_gives_the_implementation() -> None:
    assert unchecked_function(checked_turn()) is bare_turn
    assert unchecked_function(bare_turn) is bare_turn


def returned(*values: Any) -> str:
    body = (lambda *args: values) if len(values) != 1 else lambda *args: values[0]
    return refusal(turn_with(body), *args_of(crew_of()))


def test_another_number_of_return_values_is_refused() -> None:
    facts = (
        f"\n  where     runner=0 of 2, turns\n{contract_and_ran(turn_with(bare_turn))}"
        "\n  try       return every value that the contract names, each of the type that it names"
    )
    assert returned(rows_of(), 5) == (
        "StageOutputError DSA201: turn: returned 2 values, its contract has 1\n"
        f"  expected  turned\n  got       Tensor, int{facts}"
    )
    empty = f"returned 0 values, its contract has 1\n  expected  turned\n  got       no return value{facts}"
    assert returned() == f"StageOutputError DSA201: turn: {empty}"


def test_a_stage_that_works_in_place_must_return_nothing() -> None:
    @contract()
    def fill(x: Ten[Mine[V], Plain, BF16, UnitLast, N, Width], crew: Crew[V]) -> None: ...

    crew = crew_of()
    x = mine(rows_of(), Plain, crew)
    stage(fill, mode=Mode.DEVELOPMENT)(lambda x, crew: None)(x, crew)
    assert crew.log.calls == {"fill": 1}
    function: Any = stage(fill, mode=Mode.DEVELOPMENT)(lambda x, crew: x)
    text = refusal(function, x, crew)
    assert text == (
        "StageOutputError DSA201: fill: returned 1 values, its contract has 0\n"
        "  expected  no return value\n"
        "  got       Tensor\n"
        "  where     runner=0 of 2, turns\n"
        f"{contract_and_ran(function)}\n"
        "  try       return every value that the contract names, each of the type that it names"
    )


def test_an_output_that_is_an_input_object_is_refused_and_a_view_of_it_is_not() -> None:
    crew = crew_of()
    function = turn_with(lambda x, *args: x)
    text = refusal(function, *args_of(crew))
    assert text == (
        "StageOutputError DSA123: turn: returned its argument x itself\n"
        "  got       bf16[3, 2] strides (2, 1) cpu\n"
        "  where     runner=0 of 2, turns\n"
        f"{contract_and_ran(function)}\n"
        "  try       return a view of it: a brand is on an object"
    )
    assert turn_with(lambda x, *args: x.view(3, 2))(*args_of(crew)).tolist() == [[1.0, 1.0]] * 3


def test_an_implementations_own_error_passes_through_as_it_is() -> None:
    def divide(*args: Any) -> Any:
        raise ZeroDivisionError("1 / 0")

    with pytest.raises(ZeroDivisionError, match=r"^1 / 0$"):
        turn_with(divide)(*args_of(crew_of()))


def test_a_value_of_another_kind_is_refused_and_one_of_its_kind_is_not() -> None:
    crew = crew_of()
    low, high = mine(rows_of(), Plain, crew), mine(rows_of(), Warm, crew)
    assert boxed(low, high, Box(SmallBox, BF16), crew).shape == (3, 8)
    wrong: Any = Box(LargeBox, F32)
    text = refusal(boxed, low, high, wrong, crew)
    assert text.splitlines()[:2] == [
        "StageInputError DSA101: put_in_box: box is Box[LargeBox, F32]",
        "  expected  Box[B, BF16]",
    ]


@contract(returns=("warmed",))
def reshape(
    x: Ten[R, Plain, BF16, UnitLast, M, *Ds], positions: Ten[R, Plain, I64, UnitLast, M], crew: Crew[V]
) -> Ten[R, Plain, BF16, Contiguous, M, *Ds]:
    raise NotImplementedError


def test_open_dims_are_the_same_in_and_out() -> None:
    crew = crew_of()
    positions = mine(crew.numbers[crew.own_rows], Plain, crew)

    def reshaped(shape: tuple[int, ...]) -> Callable[..., Any]:
        return stage(reshape, mode=Mode.DEVELOPMENT)(lambda x, positions, crew: x.reshape(shape))  # type: ignore[return-value]

    args = (mine(rows_of(3, 4).view(3, 2, 2), Plain, crew), positions, crew)
    assert reshaped((3, 2, 2))(*args).shape == (3, 2, 2)
    for shape in ((3, 4), (3, 1, 4), (3, 4, 1)):
        assert refusal(reshaped(shape), *args).splitlines()[0] == (
            f"StageOutputError DSA202: reshape: warmed has shape {list(shape)}, which an earlier argument contradicts"
        )


@contract(returns=("y",))
def of_turns(out_dtype: type[D], strides: type[C], crew: Crew[Turns]) -> Ten[All[InOrder], Plain, D, C, Width]:
    raise NotImplementedError


def test_a_dtype_class_strides_class_and_layout_must_be_such() -> None:
    def body(out_dtype: Any, strides: Any, crew: Any) -> Any:
        return rows_of(1, 8)[0].to(out_dtype.torch_dtype)[::1]

    function: Any = stage(of_turns, mode=Mode.DEVELOPMENT)(body)
    crew, other = crew_of(), crew_of(0, Blocks())
    assert function(F32, Contiguous, crew).tolist() == [1.0] * 8
    assert refusal(function, int, Contiguous, crew).startswith("StageInputError DSA101: of_turns: out_dtype is type\n")
    assert refusal(function, F32, F32, crew).startswith("StageInputError DSA101: of_turns: strides is type\n")
    text = refusal(function, F32, UnitLast, other)
    assert text.startswith("StageInputError DSA101: of_turns: crew is Crew[Blocks]\n")
