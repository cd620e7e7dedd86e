"""A call that comes again is recognised by its looks; what differs from it is looked up, and checked."""

import copy
import pickle
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts.core.brands import brand_of
from dsa_contracts.core.contract import contract
from dsa_contracts.core.errors import ContractError
from dsa_contracts.core.marks import BF16, Plain, UnitLast
from dsa_contracts.core.modes import Mode
from dsa_contracts.core.runtime.signatures import call_signature
from dsa_contracts.core.runtime.stage import stage
from dsa_contracts.core.tensors import Ten
from tests.support.messages import refusal
from tests.support.toy import Crew, Height, Mine, Own, V, Width, args_of, checked_turn, crew_of, mine, rows_of, turn_with

pytestmark = pytest.mark.usefixtures("both_guards")


@pytest.fixture
def signatures(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the stages whose calls were looked up by signature."""
    made: list[str] = []

    def noted(args: Any, crew: Any, places: Any) -> Any:
        made.append(f"layer {crew.layer}")
        return call_signature(args, crew, places)

    monkeypatch.setattr(sys.modules["dsa_contracts.core.runtime.checker"], "call_signature", noted)
    return made


def test_a_call_that_comes_again_is_recognised_without_its_signature(signatures: list[str]) -> None:
    crew, function = crew_of(), checked_turn()
    for layer in range(5):
        function(*args_of(crew.at_layer(layer)))
    assert signatures == ["layer 0"]
    function(*args_of(crew))
    assert signatures == ["layer 0", "layer None"]
    for _ in range(2):
        function(*args_of(crew.at_layer(5)))
        function(*args_of(crew))
    assert signatures == ["layer 0", "layer None"]


def test_a_new_crew_is_looked_up_once_and_an_unlike_call_each_time(signatures: list[str]) -> None:
    function = checked_turn()
    for expected in (1, 2):
        crew = crew_of()
        for _ in range(3):
            function(*args_of(crew))
        assert len(signatures) == expected
    for scale in (3.0, 4.0, 5.0, 6.0, 7.0):
        function(*args_of(crew, scale=scale))
    assert len(signatures) == 7
    for scale in (7.0, 6.0, 5.0, 4.0):
        function(*args_of(crew, scale=scale))
    assert len(signatures) == 7
    function(*args_of(crew, scale=3.0))
    assert len(signatures) == 8


def test_results_of_a_recognised_call_are_branded_for_their_own_layer() -> None:
    crew, function = crew_of(), checked_turn()
    for layer in range(3):
        found = brand_of(function(*args_of(crew.at_layer(layer))))
        assert found is not None
        assert (found.layer, found.scope_token, found.kind.producer) == (layer, crew.token, "turn.turned")


def test_a_recognised_call_still_counts_what_no_brand_states() -> None:
    crew, function = crew_of(), checked_turn()
    for _ in range(3):
        function(*args_of(crew, x=rows_of()))
    assert crew.log.calls == {"turn": 3}
    assert crew.log.unknown == {"turn": 3}


def test_one_tensor_for_two_parameters_is_looked_up_each_time(signatures: list[str]) -> None:
    @contract()
    def compared(
        x: Ten[Mine[V], Plain, BF16, UnitLast, Own, Width],
        y: Ten[Mine[V], Plain, BF16, UnitLast, Own, Width],
        crew: Crew[V],
    ) -> None: ...

    crew = crew_of()
    x = mine(rows_of(), Plain, crew)
    function: Any = stage(compared, mode=Mode.DEVELOPMENT)(lambda x, y, crew: None)
    for _ in range(3):
        function(x, x, crew)
    assert len(signatures) == 3


def test_an_argument_that_is_returned_in_a_later_layer_is_refused() -> None:
    crew = crew_of()
    returned = [rows_of(), rows_of()]
    function = turn_with(lambda x, *others: returned.pop() if returned else x)
    for layer in range(2):
        function(*args_of(crew.at_layer(layer)))
    text = refusal(function, *args_of(crew.at_layer(2)))
    assert text.startswith("StageOutputError DSA123: turn: returned its argument x itself\n")


def test_a_result_that_another_stage_has_branded_gets_this_stage_s_brand() -> None:
    crew = crew_of()
    inner = checked_turn()
    function = turn_with(inner)
    for layer in range(3):
        found = brand_of(function(*args_of(crew.at_layer(layer))))
        assert found is not None
        assert (found.layer, found.kind.producer) == (layer, "turn.turned")


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_calls_are_recognised_in_every_grad_mode(mode: Any, signatures: list[str]) -> None:
    crew, function = crew_of(), checked_turn()
    with mode():
        for layer in range(4):
            function(*args_of(crew.at_layer(layer)))
    assert signatures == ["layer 0"]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_is_refused_and_does_not_end_the_process() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(2)])
    crew, results = crew_of(), [rows_of(), rows_of()]
    function, checked = turn_with(lambda *args: results.pop() if results else nested), checked_turn()
    for _ in range(2):
        function(*args_of(crew))
        checked(*args_of(crew, x=rows_of()))
    for again, args in ((function, args_of(crew)), (checked, args_of(crew, x=nested))):
        with pytest.raises((ContractError, RuntimeError)):
            again(*args)


def test_a_tensor_that_no_ten_describes_is_not_compared_by_value(signatures: list[str]) -> None:
    @contract(returns=("y",))
    def biased(
        x: Ten[Mine[V], Plain, BF16, UnitLast, Own, Width], bias: Tensor | None, crew: Crew[V]
    ) -> Ten[Mine[V], Plain, BF16, UnitLast, Own, Width]:
        raise NotImplementedError

    crew = crew_of()
    function: Any = stage(biased, mode=Mode.DEVELOPMENT)(lambda x, bias, crew: x + 1)  # type: ignore[arg-type, return-value]
    for _ in range(3):
        function(mine(rows_of(), Plain, crew), torch.zeros(2), crew)
    assert len(signatures) == 3


def test_a_crew_that_a_stage_has_seen_is_copied_and_pickled_without_its_memory() -> None:
    crew, function = crew_of(), checked_turn()
    function(*args_of(crew))
    assert crew.dims.latest
    for copied in (copy.deepcopy(crew), pickle.loads(pickle.dumps(crew))):
        assert copied.dims.dims == crew.dims.dims
        assert copied.dims.latest == {}


def test_each_crew_binds_the_dims_of_the_results_that_it_got() -> None:
    @contract(returns=("y",))
    def widened(
        x: Ten[Mine[V], Plain, BF16, UnitLast, Own, Width], crew: Crew[V]
    ) -> Ten[Mine[V], Plain, BF16, UnitLast, Own, Height]:
        raise NotImplementedError

    widths = [5, 5, 7, 5]
    function: Any = stage(widened, mode=Mode.DEVELOPMENT)(lambda x, crew: rows_of(3, widths.pop(0)))  # type: ignore[arg-type, return-value]
    first, second = crew_of(), crew_of()
    for crew, width in ((first, 5), (first, 5), (second, 7)):
        function(mine(rows_of(), Plain, crew), crew)
        assert crew.dims.value("height") == width
    text = refusal(function, mine(rows_of(), Plain, second), second)
    assert text.startswith("StageOutputError DSA202: widened: y has 5 height, height is 7")
