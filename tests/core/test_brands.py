"""Brands: what no shape can show, kept on a tensor object between two stages."""

from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts.core.brands import brand, brand_of
from dsa_contracts.core.declarations import declare, declare_lasting
from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.core.marks import BF16, Plain
from dsa_contracts.core.modes import unchecked
from dsa_contracts.core.views import set_brand
from tests.support.messages import refusal
from tests.support.toy import (
    Blocks,
    Box,
    Boxed,
    Cold,
    Crew,
    InOrder,
    LargeBox,
    Mine,
    Shelf,
    SmallBox,
    Turns,
    Warm,
    all_rows,
    args_of,
    boxed,
    checked_average,
    checked_turn,
    cold,
    crew_of,
    mine,
    rows_of,
    shelved,
)


def described(tensor: Tensor) -> str | None:
    found = brand_of(tensor)
    return None if found is None else found.describe()


def test_a_result_carries_rows_state_layout_layer_and_producer() -> None:
    crew, function = crew_of(), checked_turn()
    turned = function(*args_of(crew))
    assert described(turned) == "Mine[Turns], Warm, turns, from turn.turned"
    later = function(*args_of(crew.at_layer(3)))
    assert described(later) == "Mine[Turns], Warm, turns, layer 3, from turn.turned"
    assert type(turned) is Tensor


def test_a_result_without_checks_carries_nothing() -> None:
    with unchecked():
        assert described(checked_turn()(*args_of(crew_of()))) is None


@pytest.mark.parametrize("change", [lambda x: x.clone(), lambda x: x * 1])
def test_operations_drop_the_brand_and_the_tensor_is_unknown_not_refused(change: Any) -> None:
    crew, function = crew_of(), checked_turn()
    changed = change(cold(rows_of(), crew))
    assert described(changed) is None
    function(*args_of(crew, x=changed))
    assert crew.log.unknown == {"turn": 1}


def headline(function: Any, *args: Any) -> str:
    return refusal(function, *args).splitlines()[0]


def belong_to(crew: Crew[Any], x: Any) -> None:
    """Say of a tensor that it was made for another crew."""
    brand = brand_of(x)
    assert brand is not None
    set_brand(x, brand._replace(scope_token=crew.token))


def test_a_tensor_of_another_block_size_is_refused() -> None:
    one, block = (crew_of(0, Blocks(size), total=128) for size in (1, 64))
    x = cold(rows_of(64), one)
    belong_to(block, x)
    assert headline(checked_turn(), *args_of(block, x=x)) == (
        "StageInputError DSA106: turn: x is laid out as blocks, the crew as blocks(size=64)"
    )
    checked_turn()(*args_of(block, x=cold(rows_of(64), block)))


def test_a_tensor_of_another_layout_is_refused() -> None:
    turns, blocks = crew_of(total=8), crew_of(0, Blocks(), total=8)
    x = cold(rows_of(4), turns)
    belong_to(blocks, x)
    assert headline(checked_turn(), *args_of(blocks, x=x)) == (
        "StageInputError DSA106: turn: x is laid out as turns, the crew as blocks"
    )


def test_a_tensor_of_another_crew_or_layer_is_refused_and_one_for_all_layers_is_not() -> None:
    crew, function = crew_of(), checked_turn()
    stale = args_of(crew_of())[0]
    assert headline(function, *args_of(crew, x=stale)) == "StageInputError DSA108: turn: x was made for another crew"
    first = args_of(crew.at_layer(1))[0]
    assert headline(function, *args_of(crew.at_layer(2), x=first)) == (
        "StageInputError DSA108: turn: x was made for layer 1, this is layer 2"
    )
    for_all = args_of(crew)[0]
    function(*args_of(crew.at_layer(2), x=for_all))
    function(*args_of(crew, x=first))


def test_declaring_and_branding_give_back_the_same_object() -> None:
    tensor, crew = rows_of(), crew_of()
    same: list[Any] = [brand(tensor)]
    assert described(tensor) is None
    same.append(declare(tensor, Mine[Turns], Cold, crew, "me"))
    assert [id(one) for one in same] == [id(tensor)] * 2
    assert described(tensor) == "Mine[Turns], Cold, turns, from me"


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_is_declared_as_nothing() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(2)])
    with pytest.raises(ArgumentError, match="DSA602: test: a nested tensor has no rows"):
        cold(nested, crew_of())
    with pytest.raises(ArgumentError, match="DSA602: pool: a nested tensor has no rows"):
        declare_lasting(nested, Shelf, Warm, "pool")
    assert brand_of(nested) is None


def test_what_only_known_inputs_say_is_not_claimed_of_a_result() -> None:
    crew, box = crew_of(), Box(SmallBox, BF16)
    unknown: Any = rows_of()
    known = boxed(unknown, mine(rows_of(), Warm, crew), box, crew)
    assert described(known) == "Mine[Turns], Boxed[SmallBox, Warm], turns, from put_in_box.boxed"
    assert crew.log.unknown == {"put_in_box": 1}
    nothing = boxed(unknown, unknown, box, crew)
    assert described(nothing) == "Mine[Turns], unknown state, turns, from put_in_box.boxed"
    assert crew.log.unknown == {"put_in_box": 3}


def test_own_rows_for_all_rows_are_refused_even_where_one_runner_has_all() -> None:
    crew = crew_of(runners=1)
    assert len(crew.mine) == crew.seats == 7
    assert headline(checked_average(), mine(rows_of(7), Plain, crew), crew) == (
        "StageInputError DSA106: average: x holds Mine[Turns] rows, not All[InOrder]"
    )
    assert described(checked_average()(all_rows(rows_of(7), InOrder, Plain, crew), crew)) == (
        "All[InOrder], Plain, from average.mean"
    )


def shelf_of(box: object, layer: int | None = None) -> Any:
    state: Any = Boxed
    return declare_lasting(torch.zeros(5, 8, dtype=torch.uint8), Shelf, state[box, Warm], "shelf", layer)


def boxes_of(crew: Crew[Any]) -> Any:
    state: Any = Boxed
    return mine(torch.ones(3, 8, dtype=torch.uint8), state[SmallBox, Warm], crew)


def test_what_outlives_scopes_belongs_to_one_layer() -> None:
    shelf = shelf_of(SmallBox, 1)
    for _ in range(2):
        crew = crew_of()
        shelved(shelf, boxes_of(crew), crew.at_layer(1))
        assert headline(shelved, shelf, boxes_of(crew), crew.at_layer(2)) == (
            "StageInputError DSA108: put_on_shelf: shelf was made for layer 1, this is layer 2"
        )
    assert int(shelf.sum()) == 24


def test_a_state_whose_own_parameter_is_another_is_refused() -> None:
    crew = crew_of()
    assert headline(shelved, shelf_of(LargeBox), boxes_of(crew), crew) == (
        "StageInputError DSA107: put_on_shelf: boxes is Boxed[SmallBox, Warm], not Boxed[LargeBox, Warm]"
    )
    shelved(shelf_of(SmallBox), boxes_of(crew), crew)
