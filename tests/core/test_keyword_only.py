"""Contracts with keyword-only parameters: the caller must name what types alone would let it swap by place."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts.core.brands import brand, brand_of
from dsa_contracts.core.contract import contract, contract_of
from dsa_contracts.core.declarations import declare
from dsa_contracts.core.errors import ContractError
from dsa_contracts.core.marks import F32, I32, Contiguous, Dim, Plain, Rows
from dsa_contracts.core.modes import Mode, unchecked
from dsa_contracts.core.runtime.stage import stage, unchecked_function
from dsa_contracts.core.scope import Scope
from dsa_contracts.core.tensors import Ten


class Parcels(Dim):
    """Parcels of a round."""


class Carried(Rows):
    """The parcels that are carried."""


class Weights(Plain):
    """What parcels weigh."""


class Floors(Plain):
    """To which floor they go."""


@contract(returns=("effort",))
def effort_of(
    pace: Ten[Carried, Plain, F32, Contiguous, Parcels],
    *,
    weights: Ten[Carried, Weights, I32, Contiguous, Parcels],
    floors: Ten[Carried, Floors, I32, Contiguous, Parcels],
    scope: Scope,
    extra: float = 0.0,
) -> Ten[Carried, Plain, F32, Contiguous, Parcels]:
    """What each parcel costs to carry up."""
    raise NotImplementedError


def bare_effort(
    pace: Ten[Carried, Plain, F32, Contiguous, Parcels],
    *,
    weights: Ten[Carried, Weights, I32, Contiguous, Parcels],
    floors: Ten[Carried, Floors, I32, Contiguous, Parcels],
    scope: Scope,
    extra: float = 0.0,
) -> Ten[Carried, Plain, F32, Contiguous, Parcels]:
    """Ten for each floor and unit of weight."""
    return brand(pace * (weights + 10 * floors) + extra)


def given(values: list[int], state: object, scope: Scope) -> Any:
    return declare(torch.tensor(values, dtype=torch.int32), Carried, state, scope, "the caller")


def arguments(scope: Scope) -> tuple[Any, dict[str, Any]]:
    """A pace, and what must be named."""
    pace = declare(torch.tensor([1.0, 2.0]), Carried, Plain, scope, "the caller")  # type: ignore[var-annotated]
    return pace, {"weights": given([1, 2], Weights, scope), "floors": given([3, 4], Floors, scope), "scope": scope}


def checked(mode: Mode = Mode.DEVELOPMENT) -> Callable[..., Any]:
    return stage(effort_of, mode=mode)(bare_effort)


@pytest.mark.parametrize("mode", [Mode.DEVELOPMENT, Mode.VALUES])
def test_a_call_by_name_is_checked_branded_and_remembered(mode: Mode) -> None:
    scope, function = Scope({"parcels": 2}), checked(mode)
    for _ in range(3):
        pace, named = arguments(scope)
        found: Tensor = function(pace, **named)
        assert found.tolist() == [31.0, 84.0]
        brand = brand_of(found)
        assert brand is not None
        assert brand.describe() == "Carried, Plain, from effort_of.effort"
    assert scope.log.calls == {"effort_of": 3}
    assert function(**{"extra": 1.0, **named}, pace=pace).tolist() == [32.0, 85.0]
    with unchecked():
        assert function(pace, **named).tolist() == [31.0, 84.0]


def refusal(function: Callable[..., object], *args: object, **kwargs: object) -> ContractError:
    with pytest.raises(ContractError) as error:
        function(*args, **kwargs)
    return error.value


def test_what_must_be_named_is_refused_by_place_as_python_refuses_it() -> None:
    scope = Scope({"parcels": 2})
    pace, named = arguments(scope)
    rest = list(named.values())
    for args, kwargs in (((*rest, 0.0), {}), ((rest[0],), {key: named[key] for key in ("floors", "scope")})):
        with pytest.raises(TypeError) as of_python:
            bare_effort(pace, *args, **kwargs)
        error = refusal(checked(), pace, *args, **kwargs)
        assert error.code == "DSA101"
        assert str(of_python.value).startswith("bare_effort() takes 1 positional argument but")
        assert error.headline == "effort_of: too many positional arguments"
        assert error.facts[0] == ("expected", "pace, weights, floors, scope, extra")


@pytest.mark.parametrize("name", ["weights", "floors", "scope"])
def test_a_missing_one_is_named(name: str) -> None:
    pace, named = arguments(Scope({"parcels": 2}))
    del named[name]
    headline = refusal(checked(), pace, **named).headline
    assert headline.startswith("effort_of: missing a required ")
    assert headline.endswith(f"argument: {name!r}")


def test_two_that_are_swapped_by_name_are_refused_by_their_marks() -> None:
    scope = Scope({"parcels": 2})
    pace, named = arguments(scope)
    swapped = {**named, "weights": named["floors"], "floors": named["weights"]}
    error = refusal(checked(), pace, **swapped)
    assert (error.code, error.headline) == ("DSA107", "effort_of: weights is Floors, not Weights")
    assert dict(error.facts)["try"] == (
        "a tensor of your own is declared as Weights where it enters the path, with dsa_contracts.declare"
    )
    error = refusal(checked(), pace, **{**named, "floors": given([3, 4], Plain, scope)})
    assert error.headline == "effort_of: floors is Plain, not Floors"


def test_numbers_of_any_kind_are_plain_where_a_contract_asks_for_no_more() -> None:
    scope = Scope({"parcels": 2})
    _, named = arguments(scope)
    pace = declare(torch.tensor([1.0, 2.0]), Carried, Weights, scope, "the caller")  # type: ignore[var-annotated]
    assert checked()(pace, **named).tolist() == [31.0, 84.0]


def test_production_gives_back_the_function_itself() -> None:
    assert checked(Mode.PRODUCTION) is bare_effort
    assert unchecked_function(checked()) is bare_effort


def test_an_implementation_that_takes_them_by_place_has_drifted_and_so_has_one_that_wants_more_names() -> None:
    def by_place(pace: Any, weights: Any, floors: Any, scope: Any, extra: float = 0.0) -> Any:
        return pace

    def by_name(*, pace: Any, weights: Any, floors: Any, scope: Any, extra: float = 0.0) -> Any:
        return pace

    want = "pace, *, weights, floors, scope, extra=0.0"
    for function, got in ((by_place, "pace, weights, floors, scope, extra=0.0"), (by_name, f"*, {want.replace(' *,', '')}")):
        for mode in (Mode.DEVELOPMENT, Mode.PRODUCTION):
            error = refusal(stage(effort_of, mode=mode), function)
            assert error.code == "DSA002"
            assert error.facts[:2] == (("expected", want), ("got", got))
    assert contract_of(effort_of).names == ("pace", "weights", "floors", "scope", "extra")
