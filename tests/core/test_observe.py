"""Calls that somebody else makes, under the checks of a contract: by name, in part, in both modes, each fault once."""

import logging
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts.core.brands import brand_of
from dsa_contracts.core.comm import Comm, PassiveComm
from dsa_contracts.core.contract import contract
from dsa_contracts.core.declarations import declare
from dsa_contracts.core.errors import ArgumentError, ContractError, StageInputError
from dsa_contracts.core.invariant import Call, Invariant
from dsa_contracts.core.marks import BF16, F32, U8, Contiguous, Dim, Plain, Rows, State, UnitLast
from dsa_contracts.core.modes import Mode, checking_values, unchecked
from dsa_contracts.core.parts import Parts
from dsa_contracts.core.runtime.observe import Observer, observe
from dsa_contracts.core.runtime.stage import stage
from dsa_contracts.core.scope import Scope, forward
from dsa_contracts.core.tensors import Ten


class Beads(Dim):
    """Beads of the scope."""


class Colours(Dim):
    """Colours of a bead."""


class BeadBytes(Dim):
    """Bytes of a packed bead."""

    varies = True


class Strung(Rows):
    """Beads in the order of the string."""

    stated = "always"


class Loose(Rows):
    """Beads in no order."""

    stated = "always"


class Dyed(State):
    """Beads have their colour."""


def colours_are_positive() -> Invariant:
    def check(call: Call) -> str | None:
        return "a colour is below 0" if bool((call.tensor("beads") < 0).any()) else None

    return Invariant("colours_are_positive", "DSA602", "beads", "beads >= 0", True, check)


@contract(returns=("dyed", "packed"), requires=(colours_are_positive(),), advice=(("DSA106", "string the beads first"),))
def dye(
    beads: Ten[Strung, Plain, BF16, UnitLast, Beads, Colours],
    factor: float,
    scope: Scope,
) -> tuple[
    Ten[Strung, Dyed, BF16, Contiguous, Beads, Colours],
    Ten[Strung, Dyed, U8, Contiguous, Beads, BeadBytes],
]:
    """Beads have their colour."""
    raise NotImplementedError


@contract()
def knot(beads: Ten[Strung, Dyed, BF16, UnitLast, Beads, Colours], scale: Ten[Strung, Plain, F32, UnitLast, Beads]) -> None:
    """The string is closed; there is no scope among the parameters."""


@contract()
def send(packed: Ten[Strung, Dyed, U8, UnitLast, Beads, BeadBytes], scope: Scope, comm: Comm) -> None:
    """Beads are sent; a collective."""


def beads(count: int = 4, width: int = 2) -> Tensor:
    return torch.ones(count, width, dtype=torch.bfloat16)


def strung(tensor: Tensor, scope: Scope, rows: object = Strung, state: object = Plain) -> Any:
    return declare(tensor, rows, state, scope, "test")


def scope_of(**sizes: int) -> Scope:
    return Scope({"beads": 4} | sizes)


def refused(watch: Observer, /, **given: object) -> str:
    with pytest.raises(ContractError) as error:
        watch.before(**given)
    return str(error.value).splitlines()[0]


def test_a_right_call_passes_and_its_results_are_branded_in_place() -> None:
    scope, watch = scope_of(), observe(dye)
    seen = watch.before(beads=strung(beads(), scope), factor=2.0, scope=scope)
    dyed, packed = beads(), torch.zeros(4, 4, dtype=torch.uint8)
    watch.after(seen, packed=packed, dyed=dyed)
    found = [brand_of(one) for one in (dyed, packed)]
    assert [one.describe() for one in found if one] == [
        "Strung, Dyed, from dye.dyed",
        "Strung, Dyed, from dye.packed",
    ]
    assert (watch.calls, dict(watch.faults), scope.log.calls) == (1, {}, {"dye": 1})


@pytest.mark.parametrize("mode", [Mode.DEVELOPMENT, Mode.VALUES])
def test_what_is_left_out_is_not_checked_and_the_rest_is(mode: Mode) -> None:
    scope, watch = scope_of(), observe(dye, mode=mode)
    seen = watch.before(beads=strung(beads(), scope), scope=scope)
    watch.after(seen, dyed=beads())
    watch.after(watch.before(factor=2.0, scope=scope))
    text = refused(watch, beads=strung(beads(5), scope), scope=scope)
    assert text == "StageInputError DSA102: dye: beads has 5 rows, beads is 4, bound by scope"


def test_other_rows_are_refused_with_the_advice_of_the_contract() -> None:
    scope, watch = scope_of(), observe(dye, name="engine.paint")
    with pytest.raises(StageInputError) as error:
        watch.before(beads=strung(beads(), scope, Loose), scope=scope)
    assert "DSA106: dye: beads holds Loose rows, not Strung" in str(error.value)
    assert "  try       string the beads first" in str(error.value)


def test_a_result_of_another_size_is_refused() -> None:
    scope, watch = scope_of(), observe(dye)
    seen = watch.before(beads=strung(beads(), scope), scope=scope)
    with pytest.raises(ContractError, match="DSA202: dye: dyed has 3 rows"):
        watch.after(seen, dyed=beads(3))


def test_a_call_that_comes_again_is_recognised_and_one_that_differs_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    scope, watch, looked_up = scope_of(), observe(dye), []
    module = sys.modules["dsa_contracts.core.runtime.checker"]
    signature = module.call_signature

    def noted(args: Any, scope: Any, places: Any) -> Any:
        looked_up.append(1)
        return signature(args, scope, places)

    monkeypatch.setattr(module, "call_signature", noted)
    for _ in range(5):
        seen = watch.before(beads=strung(beads(), scope), scope=scope)
        watch.after(seen, dyed=beads(), packed=Parts(beads()))
    assert len(looked_up) == 1
    assert scope.log.calls == {"dye": 5}
    assert refused(watch, beads=strung(beads(), scope, state=Dyed), scope=scope).endswith("beads is Dyed, not Plain")
    assert refused(watch, beads=strung(beads().float(), scope), scope=scope).endswith("beads is f32, not bf16")


def test_a_view_in_another_shape_is_adapted_without_a_copy_and_keeps_its_brand() -> None:
    scope = scope_of()
    watch = observe(dye, adapt={"beads": lambda x: x.squeeze(1), "dyed": lambda x: x.squeeze(1)})
    for _ in range(2):
        held = strung(beads(), scope)
        dyed = beads().unsqueeze(1)
        watch.after(watch.before(beads=held.unsqueeze(1), scope=scope), dyed=dyed)
    assert scope.log.unknown == {}
    other = strung(beads(), scope, Loose)
    assert refused(watch, beads=other.unsqueeze(1), scope=scope).endswith("beads holds Loose rows, not Strung")


def test_parts_stand_for_packed_rows() -> None:
    scope, watch = scope_of(bead_bytes=6), observe(send)

    def parts(count: int = 4, width: int = 2, rows: object = Strung) -> Parts:
        left, right = torch.ones(count, width, dtype=torch.uint8), torch.ones(4, 2, dtype=torch.bfloat16)
        return Parts(strung(left, scope, rows, Dyed), strung(right, scope, Strung, Dyed))

    assert watch.before(packed=parts(), scope=scope) is not None
    assert watch.before(packed=parts(), scope=scope) is not None
    assert refused(watch, packed=parts(width=3), scope=scope).endswith("packed has 7 bytes a row, not 6")
    assert refused(watch, packed=parts(count=3), scope=scope).endswith("packed has parts of 3 and 4 rows")
    assert refused(watch, packed=parts(rows=Loose), scope=scope).endswith("packed holds Loose rows, not Strung")
    assert refused(observe(dye), beads=parts(), scope=scope_of()).endswith(
        "beads is Parts, which stand for packed rows alone"
    )


def test_results_in_parts_are_branded_part_by_part() -> None:
    scope, watch = scope_of(), observe(dye)
    for _ in range(2):
        left, right = beads(), beads()
        watch.after(watch.before(beads=strung(beads(), scope), scope=scope), packed=Parts(left, right))
        assert [one.kind.state for part in (left, right) if (one := brand_of(part))] == [Dyed, Dyed]


def test_a_call_without_a_scope_takes_that_of_its_forward() -> None:
    watch, scope = observe(dye), scope_of()
    assert watch.before(beads=beads(7)) is None
    with forward(scope):
        assert watch.before(beads=beads()) is not None
        assert refused(watch, beads=beads(7)).endswith("beads has 7 rows, beads is 4, bound by scope")
        with forward(scope_of(beads=7)):
            assert watch.before(beads=beads(7)) is not None
        with forward(None):
            assert watch.before(beads=beads(7)) is None
        assert watch.before(beads=beads()) is not None
    assert (watch.calls, watch.skipped) == (4, 2)


def test_a_contract_without_a_scope_is_checked_in_any_forward_or_none() -> None:
    watch = observe(knot)
    assert watch.before(beads=beads(7), scale=torch.ones(7)) is not None
    assert refused(watch, beads=beads(7), scale=torch.ones(6)).endswith("scale has 6 rows, beads has 7")
    with forward(scope_of()):
        assert refused(watch, beads=beads(7)).endswith("beads has 7 rows, beads is 4, bound by scope")


def test_no_collective_is_added() -> None:
    scope, group = scope_of(), PassiveComm(2, 0)
    watch = observe(send)
    for _ in range(2):
        watch.before(packed=torch.zeros(4, 6, dtype=torch.uint8), scope=scope, comm=group)
    assert list(group.agreed) == ["send layer=None u8[rows, 6] "] * 2
    other: Any = type("Talking", (PassiveComm,), {})(2, 1)
    assert watch.before(packed=torch.zeros(4, 6, dtype=torch.uint8), scope=scope, comm=other) is not None

    class Talking:
        """A group that would talk."""

        size, rank, agree, fail, done, all_gather = 2, 1, print, print, print, print

    with pytest.raises(ArgumentError, match=r"comm is Talking, .* adds no collective; give PassiveComm\(2, 1\)"):
        watch.before(packed=torch.zeros(4, 6, dtype=torch.uint8), scope=scope, comm=Talking())


def test_a_fault_is_logged_once_and_counted_each_time(caplog: pytest.LogCaptureFixture) -> None:
    scope, watch = scope_of(), observe(dye, "log")
    with caplog.at_level(logging.ERROR, "dsa_contracts"):
        for count in (5, 6, 5):
            assert watch.before(beads=beads(count), scope=scope) is None
        watch.after(None, dyed=beads())
        watch.before(beads=beads().float(), scope=scope)
    assert [record.message.splitlines()[0] for record in caplog.records] == [
        "StageInputError DSA102: dye: beads has 5 rows, beads is 4, bound by scope",
        "StageInputError DSA103: dye: beads is f32, not bf16",
    ]
    assert dict(watch.faults) == {"DSA102": 3, "DSA103": 1}


def test_a_fault_is_handed_to_a_function_once() -> None:
    told: list[ContractError] = []
    scope, watch = scope_of(), observe(dye, told.append)
    for _ in range(2):
        watch.after(watch.before(beads=beads(), scope=scope), dyed=beads(3))
    assert [error.code for error in told] == ["DSA202"]
    assert watch.faults["DSA202"] == 2


def test_values_are_read_where_asked_for_and_not_while_a_stream_captures(monkeypatch: pytest.MonkeyPatch) -> None:
    scope, watch = scope_of(), observe(dye)
    bad = strung(-beads(), scope)
    assert watch.before(beads=bad, scope=scope) is not None
    with checking_values():
        assert refused(watch, beads=bad, scope=scope).endswith("dye: a colour is below 0")
        assert watch.before(beads=strung(beads(), scope), scope=scope) is not None
        assert watch.before(factor=1.0, scope=scope) is not None
        monkeypatch.setattr(sys.modules["dsa_contracts.core.runtime.checker"], "can_read_values", lambda: False)
        assert watch.before(beads=bad, scope=scope) is not None


def test_rows_that_nothing_states_are_refused_in_values_mode() -> None:
    scope, watch = scope_of(), observe(send, mode=Mode.VALUES)
    assert refused(watch, packed=torch.zeros(4, 6, dtype=torch.uint8), scope=scope).startswith("StageInputError DSA125")
    assert watch.before(packed=strung(torch.zeros(4, 6, dtype=torch.uint8), scope, state=Dyed), scope=scope) is not None


def test_production_looks_at_nothing_and_wraps_nothing() -> None:
    watch = observe(dye, mode=Mode.PRODUCTION)
    assert watch.before(beads="nothing", nonsense=1) is None

    def paint(string: Tensor) -> Tensor:
        return string

    assert watch.around(paint, lambda string: {"beads": string}) is paint


def test_nothing_is_looked_at_while_checks_are_suspended() -> None:
    watch = observe(dye)
    with unchecked():
        assert watch.before(beads=beads(9), scope=scope_of()) is None
    assert watch.skipped == 1


def test_a_function_with_parameters_of_its_own_is_watched() -> None:
    def paint(string: Tensor, *, strength: float = 2.0) -> dict[str, Tensor]:
        """Paint."""
        return {"out": string.squeeze(1) * strength}

    watch = observe(dye)
    painted = watch.around(
        paint,
        lambda string, strength=2.0: {"beads": string.squeeze(1), "factor": strength},
        lambda result: {"dyed": result["out"]},
    )
    scope = scope_of()
    with forward(scope):
        found = brand_of(painted(strung(beads(), scope).unsqueeze(1))["out"])
        assert found is not None
        assert found.describe() == "Strung, Dyed, from dye.dyed"
        with pytest.raises(StageInputError, match="beads has 3 rows"):
            painted(beads(3).unsqueeze(1))
    assert painted.__name__ == "paint"


def test_a_call_that_returns_its_argument_changes_its_brand() -> None:
    scope, watch = scope_of(), observe(dye)
    for _ in range(2):
        one = strung(beads(), scope)
        watch.after(watch.before(beads=one, scope=scope), dyed=one)
        assert refused(watch, beads=one, scope=scope).endswith("beads is Dyed, not Plain")


NOTHING: Any = None
WRONG: dict[str, Any] = {
    "on_fault is None; it must be 'raise', 'log' or a function of the error": lambda: observe(dye, NOTHING),
    "adapt names bead; dye has beads, factor, scope, dyed, packed": lambda: observe(dye, adapt={"bead": beads}),
    "beads is not decorated with @contract or @stage": lambda: observe(beads),
    "dye has no bead; it has beads, factor, scope, and returns dyed, packed": lambda: observe(dye).before(bead=1),
    "dye has no died; it has beads, factor, scope, and returns dyed, packed": lambda: observe(dye).after(
        observe(dye).before(scope=scope_of()), died=1
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_a_wrong_name_or_option_is_named(message: str) -> None:
    with pytest.raises(ContractError) as error:
        WRONG[message]()
    assert error.value.headline == message


def test_a_scope_that_is_none_is_refused() -> None:
    assert refused(observe(dye), beads=beads(), scope="batch") == "StageInputError DSA101: dye: scope is str"


def test_a_stage_and_an_observer_of_one_contract_do_not_share_calls() -> None:
    scope, watch = scope_of(), observe(knot)
    closed = stage(knot, mode=Mode.DEVELOPMENT)(lambda beads, scale: None)
    with forward(scope):
        scale: Any = torch.ones(4)
        closed(strung(beads(), scope, state=Dyed), scale)
        assert watch.before(beads=strung(beads(), scope, state=Dyed)) is not None
        assert refused(watch, beads=strung(beads(), scope)).endswith("beads is Plain, not Dyed")


@contract(returns=("found",))
def look(cache: Ten[Strung, Plain, F32, UnitLast, Beads], watch: int, name: str) -> Ten[Strung, Plain, F32, UnitLast, Beads]:
    """Parameters may have any names."""
    raise NotImplementedError


def test_parameters_may_be_called_as_the_observer_calls_its_own() -> None:
    watch, scope = observe(look), scope_of()
    with forward(scope):
        for _ in range(3):
            watch.after(watch.before(cache=strung(torch.ones(4), scope), watch=1, name="x"), found=torch.ones(4))
        assert refused(watch, cache=strung(torch.ones(3), scope), watch=1).endswith(
            "cache has 3 rows, beads is 4, bound by scope"
        )
    assert scope.log.calls == {"look": 3}
