"""Tensors and callers that are not what they seem: torch.compile, fake tensors, subclasses."""

import sys
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from dsa_contracts.core.brands import brand_of
from tests.support.messages import refusal
from tests.support.toy import args_of, checked_turn, crew_of, rows_of


def test_checks_step_aside_while_torch_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    crew, function = crew_of(), checked_turn()
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["dsa_contracts.core.runtime.stage"], "is_compiling", lambda: True)
        assert function(*args_of(crew, x=rows_of(7))).shape == (7, 2)
    assert crew.log.calls == {}
    assert refusal(function, *args_of(crew, x=rows_of(7))).startswith("StageInputError DSA102: turn: x has 7 rows")


@pytest.mark.filterwarnings("ignore")
def test_a_compiled_caller_has_the_checked_callers_values() -> None:
    crew, function = crew_of(), checked_turn()
    args = args_of(crew)

    def twice(x: Any, positions: Any) -> Any:
        return function(x, positions, 2.0, crew) * 2

    compiled = torch.compile(twice, backend="eager", fullgraph=True)
    assert compiled(args[0], args[1]).tolist() == twice(args[0], args[1]).tolist() == [[4.0, 4.0]] * 3
    assert crew.log.calls == {"turn": 1}


def test_fake_tensors_are_checked_as_real_ones_are() -> None:
    crew, function = crew_of(), checked_turn()
    _, positions, _, _ = args_of(crew)
    with FakeTensorMode() as mode:
        right, wrong = mode.from_tensor(rows_of()), mode.from_tensor(rows_of(7))
        where = mode.from_tensor(positions)
        turned = function(right, where, 2.0, crew)
        text = refusal(function, wrong, where, 2.0, crew)
    assert type(turned) is type(right)
    found = brand_of(turned)
    assert found is not None
    assert found.kind.producer == "turn.turned"
    assert text.startswith("StageInputError DSA102: turn: x has 7 rows, which is neither own 3 nor seats 4\n")


def test_a_subclass_of_tensor_is_a_tensor() -> None:
    class Marked(torch.Tensor):
        """A tensor with a name of its own."""

    turned = checked_turn()(*args_of(crew_of(), x=rows_of().as_subclass(Marked)))
    assert type(turned) is Marked
    assert brand_of(turned) is not None


def test_a_call_under_inference_mode_is_checked_and_branded() -> None:
    crew, function = crew_of(), checked_turn()
    with torch.inference_mode():
        turned = function(*args_of(crew))
        text = refusal(function, *args_of(crew, x=turned))
    assert text.startswith("StageInputError DSA107: turn: x is Warm, not Cold\n")
