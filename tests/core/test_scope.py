"""Scopes: what they say by default, and how calls that take none get the one of the work that they run in."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from dsa_contracts.core.bound_dims import BoundSize, CheckLog
from dsa_contracts.core.brands import brand_of
from dsa_contracts.core.contract import contract, contract_of
from dsa_contracts.core.marks import BF16, Contiguous, UnitLast
from dsa_contracts.core.modes import Mode, can_read_values, checking_values
from dsa_contracts.core.runtime.stage import stage
from dsa_contracts.core.scope import Scope, current_scope, forward
from dsa_contracts.core.tensors import Ten
from tests.support.messages import contract_and_ran, refusal
from tests.support.toy import Cold, Depth, Mine, Turns, Warm, Width, checked_average, crew_of, mine, picked, rows_of


class Round(Scope):
    """A scope that says nothing of its own but its name."""

    noun = "round"


@contract(returns=("warmed",))
def warm_up(
    x: Ten[Mine[Turns], Cold, BF16, UnitLast, Depth, Width],
) -> Ten[Mine[Turns], Warm, BF16, Contiguous, Depth, Width]:
    """A stage that takes no scope."""
    raise NotImplementedError


warmed: Any = stage(warm_up, mode=Mode.DEVELOPMENT)(lambda x: x + 0)  # type: ignore[arg-type, return-value]


def test_a_scope_needs_no_more_than_a_name() -> None:
    scope = Round({"width": 2}, layer=3)
    assert scope.dims.dims == {"width": BoundSize(2, "round")}
    assert (scope.where, Round().where, scope.device, scope.fingerprint) == ("layer 3", "", None, "")
    assert (scope.type_marks, scope.bound_marks, scope.variant_of(Mine[Turns]), scope.meaning_of(2)) == ((), {}, "", "")
    assert scope.signature is Round().signature is Round
    assert scope.signature is not Scope().signature
    assert scope.log == CheckLog()
    assert scope.token is not Round().token
    scope.check_itself("any stage", "any place")


def test_a_vocabulary_says_what_its_type_parameters_stand_for() -> None:
    assert crew_of().bound_marks == {"V": Turns}


def test_outside_of_a_forward_each_call_is_a_scope_of_its_own() -> None:
    assert current_scope() is None
    assert warmed(rows_of(3, 2)).shape == (3, 2)
    assert warmed(rows_of(5, 8)).shape == (5, 8)


def test_in_a_forward_calls_share_dims_log_and_brands() -> None:
    scope = Round(layer=1)
    with forward(scope):
        found = brand_of(warmed(rows_of(3, 2)))
        text = refusal(warmed, rows_of(3, 8))
    assert found is not None
    assert (found.scope_token, found.layer) == (scope.token, 1)
    assert scope.log.calls == {"warm_up": 1}
    assert text == (
        "StageInputError DSA102: warm_up: x has 8 width, width is 2, bound by warm_up.x\n"
        "  expected  bf16[depth width] UnitLast, Mine[Turns], Cold; depth=3, bound by warm_up.x; "
        "width=2, bound by warm_up.x\n"
        "  got       bf16[3, 8] strides (8, 1) cpu\n"
        "  where     layer 1\n"
        f"{contract_and_ran(warmed)}\n"
        "  try       pass a tensor of the bound size: a dim has one size in all calls of its scope"
    )
    assert warmed(rows_of(3, 8)).shape == (3, 8)


def test_a_tensor_of_one_forward_is_stale_in_the_next() -> None:
    first, second = crew_of(), crew_of()
    x = mine(rows_of(), Cold, first)
    with forward(first):
        warmed(x)
    with forward(second):
        assert refusal(warmed, x).startswith("StageInputError DSA108: warm_up: x was made for another crew\n")
        warmed(mine(rows_of(), Cold, second))


def test_forwards_nest_and_none_belongs_to_none() -> None:
    outer, inner = Round({"width": 2}), Round({"width": 8})
    seen = []
    with forward(outer):
        with forward(inner):
            warmed(rows_of(3, 8))
            with forward(None):
                seen.append(current_scope())
                warmed(rows_of(3, 5))
            seen.append(current_scope())
        warmed(rows_of(3, 2))
        assert refusal(warmed, rows_of(3, 8)).startswith(
            "StageInputError DSA102: warm_up: x has 8 width, width is 2, bound by round"
        )
    assert seen == [None, inner]
    assert (outer.log.calls, inner.log.calls) == ({"warm_up": 1}, {"warm_up": 1})


def test_a_forward_ends_with_an_error_in_it() -> None:
    with pytest.raises(ZeroDivisionError), forward(Round()):
        raise ZeroDivisionError
    assert current_scope() is None


def test_a_forward_is_seen_by_its_own_thread_alone() -> None:
    scope = Round()
    with ThreadPoolExecutor(1) as pool, forward(scope):
        assert pool.submit(current_scope).result(10) is None
        assert current_scope() is scope


def test_micro_batches_in_tasks_have_each_their_own() -> None:
    scopes = [Round({"width": width}) for width in (2, 8)]

    async def step(scope: Scope, width: int) -> Scope | None:
        with forward(scope):
            for _ in range(3):
                warmed(rows_of(3, width))
                await asyncio.sleep(0)
            return current_scope()

    async def both() -> list[Scope | None]:
        return list(await asyncio.gather(step(scopes[0], 2), step(scopes[1], 8)))

    assert asyncio.run(both()) == scopes
    assert [scope.log.calls["warm_up"] for scope in scopes] == [3, 3]


def test_a_scope_that_is_an_argument_is_the_scope_of_the_call() -> None:
    crew, other = crew_of(), Round({"width": 8})
    with forward(other):
        from_crew = checked_average()(rows_of(7), crew)
    assert from_crew.shape == (7, 2)
    assert (crew.log.calls, other.log.calls) == ({"average": 1}, {})
    assert (contract_of(warm_up).scope_param, contract_of(checked_average()).scope_param) == (None, "crew")


def flipped() -> object:
    crew = crew_of()
    rows: Any = crew.own_rows.flip(0)
    return picked(crew.numbers, rows, crew)


@pytest.mark.parametrize("is_capturing", [False, True])
def test_no_value_is_read_while_a_stream_captures(monkeypatch: pytest.MonkeyPatch, is_capturing: bool) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: is_capturing)
    assert can_read_values() is not is_capturing
    with checking_values():
        if is_capturing:
            flipped()
        else:
            assert refusal(flipped).startswith("StageInputError DSA106: pick: rows[0] is 5, own row 0 is 1\n")


def test_no_value_is_read_while_a_compiler_traces_and_a_build_without_cuda_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asked() -> bool:
        raise AssertionError

    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", asked)
    assert can_read_values()
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not can_read_values()


def test_a_call_whose_values_could_not_be_read_is_read_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    crew = crew_of()
    rows: Any = crew.own_rows.flip(0)
    with checking_values():
        with monkeypatch.context() as patch:
            patch.setattr("dsa_contracts.core.runtime.checker.can_read_values", lambda: False)
            picked(crew.numbers, rows, crew)
        assert refusal(picked, crew.numbers, rows, crew).startswith("StageInputError DSA106: pick: rows[0] is 5")


def test_the_scope_looks_at_itself_before_a_call_that_reads_values() -> None:
    crew = crew_of()
    crew.own_rows[0] = 0
    picked(crew.numbers, crew.own_rows, crew)
    with checking_values():
        text = refusal(picked, crew.numbers, crew.own_rows, crew)
    assert text == (f"ContractError DSA602: pick: own_rows are [0, 3, 5], runner 0 has [1, 3, 5]\n{contract_and_ran(picked)}")
