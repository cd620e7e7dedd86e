"""What is recognised by its looks has the same signature: for any two calls out of everything that a contract reads."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dsa_contracts.core.contract import contract, contract_of
from dsa_contracts.core.declarations import declare, declare_lasting
from dsa_contracts.core.invariant import Call, Invariant
from dsa_contracts.core.marks import BF16, F32, Plain, UnitLast
from dsa_contracts.core.runtime.guards import HAS_GUARDS
from dsa_contracts.core.runtime.looks import look_of_call
from dsa_contracts.core.runtime.signatures import call_signature, places_of
from dsa_contracts.core.tensors import Ten
from tests.support.toy import All, Cold, Crew, InOrder, Mine, N, Own, Shelf, Turns, V, Warm, Width, crew_of


def starts_anywhere() -> Invariant:
    def check(call: Call) -> str | None:
        return None

    return Invariant("starts_anywhere", "DSA104", "x", "x starts where it likes", False, check, reads_offset=True)


@contract(requires=(starts_anywhere(),))
def mixed(
    x: Ten[Mine[V], Cold, BF16, UnitLast, N, Width],
    table: Ten[Shelf, Plain, F32, UnitLast, Own, Width] | None,
    scale: float,
    names: str,
    crew: Crew[V],
) -> None:
    """One parameter of each kind that takes part in a signature, none of them checked here."""


PLACES = places_of(contract_of(mixed))
BATCHES = crew_of(), crew_of(), crew_of(1)
"""Two crews that agree in all facts, and another rank's."""

TENSORS: dict[str, Callable[[], Tensor]] = {
    "rows": lambda: torch.ones(3, 2, dtype=torch.bfloat16),
    "fewer rows": lambda: torch.ones(2, 2, dtype=torch.bfloat16),
    "rows apart": lambda: torch.ones(3, 4, dtype=torch.bfloat16)[:, :2],
    "rows that start later": lambda: torch.ones(5, 2, dtype=torch.bfloat16)[1:4],
    "turned": lambda: torch.ones(2, 3, dtype=torch.bfloat16).t(),
    "float16": lambda: torch.ones(3, 2, dtype=torch.float16),
    "meta": lambda: torch.ones(3, 2, dtype=torch.bfloat16, device="meta"),
    "with gradient": lambda: torch.ones(3, 2, dtype=torch.bfloat16, requires_grad=True),
    "parameter": lambda: torch.nn.Parameter(torch.ones(3, 2, dtype=torch.bfloat16)),
}
BRANDS = ("none", "cold", "rotated", "global", "another crew", "another layer", "no layer", "lasting", "lasting in layer 1")
MINE: Any = Mine
ALL: Any = All


def branded(tensor: Tensor, brand: str, crew: Crew[Any]) -> Tensor:
    """A tensor with one of the brands."""
    other = BATCHES[0] if crew.token is not BATCHES[0].token else BATCHES[1]
    in_layer = replace_layer(crew, 7)
    if brand.startswith("lasting"):
        return declare_lasting(tensor, MINE[Turns], Cold, "test", 1 if "layer" in brand else None)
    kinds: dict[str, tuple[Any, Any, Crew[Any]]] = {
        "cold": (MINE[V], Cold, crew),
        "rotated": (MINE[V], Warm, crew),
        "global": (ALL[InOrder], Cold, crew),
        "another crew": (MINE[V], Cold, other),
        "another layer": (MINE[V], Cold, in_layer),
        "no layer": (MINE[V], Cold, replace_layer(crew, None)),
    }
    return tensor if brand == "none" else declare(tensor, *kinds[brand], "test")


def replace_layer(crew: Crew[Any], layer: int | None) -> Crew[Any]:
    view = crew.at_layer(0 if layer is None else layer)
    object.__setattr__(view, "layer", layer)
    return view


CALLS = st.tuples(
    st.sampled_from(sorted(TENSORS)),
    st.sampled_from(BRANDS),
    st.sampled_from(["no table", *sorted(TENSORS)]),
    st.sampled_from([1.0, 2.0, 2, True, float("nan")]),
    st.sampled_from(["", "a", "ab"]),
    st.sampled_from([0, 1, 2]),
    st.sampled_from([None, 0, 1, 300]),
)


def call_of(drawn: Any) -> tuple[tuple[Any, ...], Crew[Any]]:
    tensor, brand, table, scale, names, which, layer = drawn
    crew = replace_layer(BATCHES[which], layer)
    second = None if table == "no table" else TENSORS[table]()
    return (branded(TENSORS[tensor](), brand, crew), second, scale, names, crew), crew


def signature(call: tuple[Any, ...], crew: Crew[Any]) -> tuple[object, ...]:
    return call_signature(call, crew, PLACES)


@settings(max_examples=400)
@given(CALLS, CALLS, st.booleans())
def test_a_recognised_call_has_the_signature_of_the_one_it_looks_like(one: Any, two: Any, in_python: bool) -> None:
    """Each call is also one that differs from the first in one thing."""
    first, crew = call_of(one)
    if signature(first, crew) != signature(first, crew):
        return  # a stale brand: equal to nothing, and refused before it could be remembered
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsa_contracts.core.runtime.guards.HAS_GUARDS", HAS_GUARDS and not in_python)
        is_again = look_of_call(first, crew, PLACES, is_watched=False)
    for drawn in (one, two, *(one[:at] + two[at : at + 1] + one[at + 1 :] for at in range(7))):
        call, other = call_of(drawn)
        if other.signature is crew.signature and is_again(call, other):
            assert signature(call, other) == signature(first, crew)


@given(CALLS)
def test_the_same_call_with_other_tensors_is_recognised(one: Any) -> None:
    first, crew = call_of(one)
    again, _ = call_of(one)
    if signature(first, crew) == signature(again, crew):
        assert look_of_call(first, crew, PLACES, is_watched=False)(again, crew)
