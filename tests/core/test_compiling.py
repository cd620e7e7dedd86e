"""Tensors and callers that are not what they seem: torch.compile, fake tensors, subclasses."""

import sys
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from dsa_contracts import brand_of
from tests.core.toys import args_of, batch_of, checked_turn, refusal, rows_of


def test_checks_step_aside_while_torch_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, function = batch_of(), checked_turn()
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["dsa_contracts.core.runtime.stage"], "is_compiling", lambda: True)
        assert function(*args_of(batch, x=rows_of(7))).shape == (7, 2)
    assert batch.log.calls == {}
    assert refusal(function, *args_of(batch, x=rows_of(7))).startswith("StageInputError DSA102: turn: x has 7 rows")


@pytest.mark.filterwarnings("ignore")
def test_a_compiled_caller_has_the_checked_callers_values() -> None:
    batch, function = batch_of(), checked_turn()
    args = args_of(batch)

    def twice(x: Any, positions: Any) -> Any:
        return function(x, positions, 2.0, batch) * 2

    compiled = torch.compile(twice, backend="eager", fullgraph=True)
    assert compiled(args[0], args[1]).tolist() == twice(args[0], args[1]).tolist() == [[4.0, 4.0]] * 3
    assert batch.log.calls == {"turn": 1}


def test_fake_tensors_are_checked_as_real_ones_are() -> None:
    batch, function = batch_of(), checked_turn()
    _, positions, _, _ = args_of(batch)
    with FakeTensorMode() as mode:
        right, wrong = mode.from_tensor(rows_of()), mode.from_tensor(rows_of(7))
        where = mode.from_tensor(positions)
        turned = function(right, where, 2.0, batch)
        text = refusal(function, wrong, where, 2.0, batch)
    assert type(turned) is type(right)
    found = brand_of(turned)
    assert found is not None
    assert found.kind.producer == "turn.turned"
    assert text.startswith("StageInputError DSA102: turn: x has 7 rows, which is neither nnz_local 3 nor nnz_padded 4\n")


def test_a_subclass_of_tensor_is_a_tensor() -> None:
    class Marked(torch.Tensor):
        """A tensor with a name of its own."""

    turned = checked_turn()(*args_of(batch_of(), x=rows_of().as_subclass(Marked)))
    assert type(turned) is Marked
    assert brand_of(turned) is not None


def test_a_call_under_inference_mode_is_checked_and_branded() -> None:
    batch, function = batch_of(), checked_turn()
    with torch.inference_mode():
        turned = function(*args_of(batch))
        text = refusal(function, *args_of(batch, x=turned))
    assert text.startswith("StageInputError DSA107: turn: x is Rotated, not Raw\n")
