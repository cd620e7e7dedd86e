"""What a view takes over of the brand of the memory that it shows, and what it does not."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts.core.brands import brand_of
from dsa_contracts.core.declarations import declare, declare_lasting
from dsa_contracts.core.marks import Plain, Rows, State
from dsa_contracts.core.scope import Scope
from dsa_contracts.core.views import adopt, set_brand


class Mine(Rows):
    """This worker's rows."""


class Yours(Rows):
    """Another worker's rows."""


class Shelf(Rows):
    """Places that may be grouped."""

    is_store = True


class Done(State):
    """A step has been taken."""


def kinds(tensor: Tensor, scope: Scope) -> tuple[object, object] | None:
    """Rows and state that a tensor takes over; None where it takes over nothing."""
    brand = brand_of(tensor) if adopt(tensor, scope) else None
    return None if brand is None else (brand.kind.rows, brand.kind.state)


def rows(*shape: int) -> Tensor:
    return torch.zeros(*(shape or (3, 8)))


@pytest.fixture(params=["normal", "no_grad", "inference_mode"])
def _grad_mode(request: pytest.FixtureRequest) -> Any:
    if request.param == "normal":
        yield
        return
    with getattr(torch, request.param)():
        yield


KEPT: dict[str, Callable[[Tensor], Tensor]] = {
    "all of it": lambda x: x[:],
    "in other dims": lambda x: x.view(3, 2, 4),
    "with a dim of one": lambda x: x.unsqueeze(1),
    "with a dim of one in front": lambda x: x.unsqueeze(0),
    "without its dim of one": lambda x: x.unsqueeze(1).squeeze(1),
    "as bytes": lambda x: x.view(torch.uint8),
    "transposed in its rows": lambda x: x.view(3, 2, 4).transpose(1, 2),
}


@pytest.mark.usefixtures("_grad_mode")
@pytest.mark.parametrize("view", KEPT.values(), ids=KEPT)
def test_a_view_of_whole_rows_keeps_rows_and_state(view: Callable[[Tensor], Tensor]) -> None:
    scope = Scope()
    x: Tensor = declare(rows(), Mine, Done, scope, "test")
    assert kinds(view(x), scope) == (Mine, Done)


@pytest.mark.usefixtures("_grad_mode")
def test_a_slice_of_columns_keeps_the_rows_and_its_state_is_unknown() -> None:
    scope = Scope()
    x: Tensor = declare(rows(), Mine, Done, scope, "test")
    assert kinds(x[:, 2:5], scope) == (Mine, None)
    assert kinds(x[:, 2], scope) == (Mine, None)
    found = brand_of(x[:, :4]) or (adopt(part := x[:, :4], scope) and brand_of(part))
    assert found
    assert found.kind.producer == "test, part of a row"


OTHERS: dict[str, Callable[[Tensor], Tensor]] = {
    "fewer rows": lambda x: x[:2],
    "later rows": lambda x: x[1:],
    "every other row": lambda x: x[::2],
    "columns as rows": lambda x: x.t(),
    "rows cut in two": lambda x: x.view(6, 4),
    "one row": lambda x: x[0],
    "a copy": lambda x: x.clone(),
    "the result of an operation": lambda x: x + 1,
}


@pytest.mark.usefixtures("_grad_mode")
@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_other_rows_take_over_nothing(other: Callable[[Tensor], Tensor]) -> None:
    scope = Scope()
    x: Tensor = declare(rows(), Mine, Done, scope, "test")
    assert kinds(other(x), scope) is None


def test_a_view_of_a_branded_view_finds_it_and_not_its_base() -> None:
    scope, buffer = Scope(), rows(3, 8)
    left: Tensor = declare(buffer[:, :4], Mine, Plain, scope, "left")
    right: Tensor = declare(buffer[:, 4:], Mine, Done, scope, "right")
    assert kinds(left.unsqueeze(1), scope) == (Mine, Plain)
    assert kinds(right.view(3, 2, 2), scope) == (Mine, Done)
    assert kinds(buffer[:, 1:3], scope) == (Mine, None)
    assert kinds(buffer[:, 3:5], scope) is None
    assert kinds(buffer[:], scope) is None


def test_the_narrowest_branded_place_tells_most() -> None:
    scope = Scope()
    buffer: Tensor = declare(rows(3, 8), Mine, Done, scope, "whole")
    declare(buffer[:, :4], Mine, Plain, scope, "half")
    assert kinds(buffer[:, :4], scope) == (Mine, Plain)
    assert kinds(buffer[:, 4:], scope) == (Mine, None)


def test_a_store_may_be_grouped_and_a_layer_of_several_is_another() -> None:
    scope, cache = Scope(), rows(2, 10, 1, 8)
    for layer in range(2):
        declare_lasting(cache[layer], Shelf, Plain, "cache", layer)
    grouped = cache[1].squeeze(1)[:8].view(2, 4, 8)
    assert kinds(grouped, Scope(layer=1)) == (Shelf, Plain)
    assert kinds(cache[1].squeeze(1)[:8].view(2, 4, 8), Scope(layer=0)) == (Shelf, Plain)
    found = brand_of(grouped)
    assert found is not None
    assert found.layer == 1
    assert kinds(cache[1].squeeze(1)[4:8].view(1, 4, 8), Scope(layer=1)) is None
    assert kinds(cache[:], scope) is None


def test_what_another_scope_or_layer_left_in_a_buffer_says_nothing() -> None:
    scope, buffer = Scope(layer=0), rows()
    declare(buffer[:], Mine, Done, scope, "test")
    later = Scope(layer=1)
    assert kinds(buffer[:], Scope()) is None
    later.token = scope.token
    assert kinds(buffer[:], later) is None
    assert kinds(buffer[:], scope) == (Mine, Done)


def test_memory_that_is_used_anew_forgets_what_stood_there() -> None:
    scope, buffer = Scope(), rows(6, 4)
    declare(buffer[:3], Mine, Done, scope, "before")
    declare(buffer.view(3, 8)[:2], Yours, Plain, scope, "after")
    assert kinds(buffer[:3], scope) is None
    assert kinds(buffer.view(3, 8)[:2], scope) == (Yours, Plain)


def test_memory_beside_it_is_not_forgotten() -> None:
    scope, buffer = Scope(), rows(6, 4)
    declare(buffer[:3], Mine, Done, scope, "before")
    declare(buffer[3:].view(1, 12), Yours, Plain, scope, "beside")
    assert kinds(buffer[:3], scope) == (Mine, Done)


def test_no_rows_are_rows_too() -> None:
    scope = Scope()
    x: Tensor = declare(rows(0, 8), Mine, Done, scope, "test")
    assert kinds(x[:, :4], scope) == (Mine, None)
    assert kinds(x[:], scope) == (Mine, Done)


@pytest.mark.usefixtures("_grad_mode")
def test_what_changes_in_place_behind_a_brand_is_not_seen() -> None:
    """A limit: a version counter would refuse kernels that rightly write in place, and inference mode has none."""
    scope = Scope()
    x: Tensor = declare(torch.arange(6.0).view(3, 2), Mine, Done, scope, "test")
    x.copy_(x.flip(0))
    assert kinds(x, scope) == (Mine, Done)
    assert kinds(x[:], scope) == (Mine, Done)


def test_a_brand_that_was_taken_off_is_not_taken_over_again() -> None:
    scope = Scope()
    x: Tensor = declare(rows(), Mine, Done, scope, "test")
    view = x[:]
    set_brand(view, None)
    assert kinds(view, scope) is None


def test_what_is_declared_goes_by_the_variant_that_the_scope_has_now() -> None:
    class Turning(Scope):
        """A scope whose rows mean something else after each turn."""

        turn = 0

        @property
        def signature(self) -> object:
            return (Turning, self.turn)

        def variant_of(self, rows: object) -> str:
            return f"turn {self.turn}" if rows is Mine else ""

    scope = Turning()
    first: Tensor = declare(rows(), Mine, Done, scope, "test")
    scope.turn = 1
    second: Tensor = declare(rows(), Mine, Done, scope, "test")
    found = [brand_of(one) for one in (first, second)]
    assert [one.kind.variant for one in found if one] == ["turn 0", "turn 1"]
