"""`sources`: where an argument may come from, compared with what made it; what a caller declares is legal from anywhere."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from dsa_contracts.core.brands import Kind, brand, make_brand
from dsa_contracts.core.contract import contract, contract_of
from dsa_contracts.core.declarations import declare
from dsa_contracts.core.errors import ContractError
from dsa_contracts.core.marks import I32, Contiguous, Dim, Plain, Rows
from dsa_contracts.core.modes import Mode
from dsa_contracts.core.runtime.stage import stage
from dsa_contracts.core.scope import Scope
from dsa_contracts.core.tensors import Ten
from dsa_contracts.core.views import set_brand


class Parcels(Dim):
    """Parcels of a round."""


class Carried(Rows):
    """The parcels that are carried."""


class Weights(Plain):
    """What parcels weigh."""


@contract(returns=("weights",))
def weigh(count: int, scope: Scope) -> Ten[Carried, Weights, I32, Contiguous, Parcels]:
    """What a scale says."""
    raise NotImplementedError


@contract(returns=("weights",))
def guess(count: int, scope: Scope) -> Ten[Carried, Weights, I32, Contiguous, Parcels]:
    """What somebody thinks."""
    raise NotImplementedError


@contract(sources=(("weights", ("weigh.weights", "round.weights")),))
def bill(weights: Ten[Carried, Weights, I32, Contiguous, Parcels], scope: Scope) -> None:
    """Parcels are billed by weight; a guess will not do."""


@contract()
def load(weights: Ten[Carried, Weights, I32, Contiguous, Parcels], scope: Scope) -> None:
    """Parcels are loaded; a guess will do."""


def make(stub: Callable[..., object]) -> Callable[..., Any]:
    def ones(count: int, scope: Scope) -> Any:
        return brand(torch.ones(count, dtype=torch.int32))

    return stage(stub, mode=Mode.DEVELOPMENT)(ones)


def user(stub: Callable[..., object]) -> Callable[..., Any]:
    def use(weights: Any, scope: Scope) -> None: ...

    return stage(stub, mode=Mode.DEVELOPMENT)(use)


def refusal(function: Callable[..., object], *args: object) -> ContractError:
    with pytest.raises(ContractError) as error:
        function(*args)
    return error.value


def held_by_scope(name: str, scope: Scope) -> Any:
    """A tensor as a scope brands its own."""
    tensor = torch.ones(2, dtype=torch.int32)
    set_brand(tensor, make_brand(Kind(Carried, Weights, "", f"round.{name}", is_declared=False), scope.token, None))
    return tensor


def test_what_another_stage_made_is_refused_though_rows_and_state_are_right() -> None:
    scope = Scope({"parcels": 2})
    user(bill)(make(weigh)(2, scope), scope)
    error = refusal(user(bill), make(guess)(2, scope), scope)
    assert (error.code, error.headline) == (
        "DSA106",
        "bill: weights comes from guess.weights, not from weigh.weights or round.weights",
    )
    facts = dict(error.facts)
    assert facts["because"] == "its brand: Carried, Weights, from guess.weights"
    assert facts["contract"] == contract_of(bill).location
    assert facts["try"] == (
        "pass weigh.weights or round.weights; where something else makes the same, say so with dsa_contracts.declare"
    )


def test_it_is_refused_also_after_the_same_call_from_a_legal_source_has_been_remembered() -> None:
    scope, billed = Scope({"parcels": 2}), user(bill)
    for _ in range(4):
        billed(make(weigh)(2, scope), scope)
    assert refusal(billed, make(guess)(2, scope), scope).code == "DSA106"
    other = Scope({"parcels": 2})
    billed(make(weigh)(2, other), other)
    assert refusal(billed, make(guess)(2, other), other).code == "DSA106"
    assert scope.log.calls["bill"] == 4


def test_of_the_tensors_that_a_scope_holds_only_the_named_one_is_legal() -> None:
    scope, billed = Scope({"parcels": 2}), user(bill)
    billed(held_by_scope("weights", scope), scope)
    assert refusal(billed, held_by_scope("counts", scope), scope).headline == (
        "bill: weights comes from round.counts, not from weigh.weights or round.weights"
    )


def test_what_a_caller_declares_is_legal_whatever_it_calls_itself_and_so_is_what_has_no_brand() -> None:
    scope, billed = Scope({"parcels": 2}), user(bill)
    for producer in ("the engine", "guess.weights"):
        billed(declare(torch.ones(2, dtype=torch.int32), Carried, Weights, scope, producer), scope)
    billed(torch.ones(2, dtype=torch.int32), scope)
    assert scope.log.unknown == {"bill": 1}


def test_a_contract_without_sources_takes_it_from_anywhere() -> None:
    scope = Scope({"parcels": 2})
    user(load)(make(guess)(2, scope), scope)


def test_rows_and_state_are_refused_before_the_source_is_looked_at() -> None:
    scope = Scope({"parcels": 2})
    plain = torch.ones(2, dtype=torch.int32)
    set_brand(plain, make_brand(Kind(Carried, Plain, "", "guess.weights", is_declared=False), scope.token, None))
    error = refusal(user(bill), plain, scope)
    assert (error.code, error.headline) == ("DSA107", "bill: weights is Plain, not Weights")
    assert dict(error.facts)["try"] == (
        "pass weigh.weights or round.weights; a tensor of your own is declared as Weights where it enters the path, with"
        " dsa_contracts.declare"
    )


def test_kinds_have_one_key_unless_a_contract_may_tell_them_apart() -> None:
    def key(producer: str, *, is_declared: bool) -> object:
        return Kind(Carried, Weights, "", producer, is_declared=is_declared).key

    assert key("me", is_declared=True) is key("you", is_declared=True)
    assert key("guess.weights", is_declared=False) is key("guess.weights", is_declared=False)
    assert key("guess.weights", is_declared=False) is not key("weigh.weights", is_declared=False)
    assert key("guess.weights", is_declared=False) is not key("guess.weights", is_declared=True)
