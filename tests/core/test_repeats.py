"""A call that comes again is recognised by its looks; what differs from it is looked up, and checked."""

import copy
import pickle
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import ContractError, CpBatch, Mode, Ten, contract, stage
from dsa_contracts.core.brands import brand_of
from dsa_contracts.core.marks import BF16, Plain, UnitLast
from dsa_contracts.core.runtime.signatures import call_signature
from dsa_contracts.dsa.dims import KvLoraRank, NnzLocal, QkHeadDim
from dsa_contracts.dsa.states import Local
from dsa_contracts.dsa.typevars import L
from tests.core.toys import args_of, batch_of, checked_turn, local, refusal, rows_of, turn_with

pytestmark = pytest.mark.usefixtures("both_guards")


@pytest.fixture
def signatures(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the stages whose calls were looked up by signature."""
    made: list[str] = []

    def noted(args: Any, batch: Any, places: Any) -> Any:
        made.append(f"layer {batch.layer}")
        return call_signature(args, batch, places)

    monkeypatch.setattr(sys.modules["dsa_contracts.core.runtime.checker"], "call_signature", noted)
    return made


def test_a_call_that_comes_again_is_recognised_without_its_signature(signatures: list[str]) -> None:
    batch, function = batch_of(), checked_turn()
    for layer in range(5):
        function(*args_of(batch.at_layer(layer)))
    assert signatures == ["layer 0"]
    function(*args_of(batch))
    assert signatures == ["layer 0", "layer None"]
    for _ in range(2):
        function(*args_of(batch.at_layer(5)))
        function(*args_of(batch))
    assert signatures == ["layer 0", "layer None"]


def test_a_new_batch_is_looked_up_once_and_an_unlike_call_each_time(signatures: list[str]) -> None:
    function = checked_turn()
    for expected in (1, 2):
        batch = batch_of()
        for _ in range(3):
            function(*args_of(batch))
        assert len(signatures) == expected
    for scale in (3.0, 4.0, 5.0, 6.0, 7.0):
        function(*args_of(batch, scale=scale))
    assert len(signatures) == 7
    for scale in (7.0, 6.0, 5.0, 4.0):
        function(*args_of(batch, scale=scale))
    assert len(signatures) == 7
    function(*args_of(batch, scale=3.0))
    assert len(signatures) == 8


def test_results_of_a_recognised_call_are_branded_for_their_own_layer() -> None:
    batch, function = batch_of(), checked_turn()
    for layer in range(3):
        found = brand_of(function(*args_of(batch.at_layer(layer))))
        assert found is not None
        assert (found.layer, found.scope_token, found.kind.producer) == (layer, batch.token, "turn.turned")


def test_a_recognised_call_still_counts_what_no_brand_states() -> None:
    batch, function = batch_of(), checked_turn()
    for _ in range(3):
        function(*args_of(batch, x=rows_of()))
    assert batch.log.calls == {"turn": 3}
    assert batch.log.unknown == {"turn": 3}


def test_one_tensor_for_two_parameters_is_looked_up_each_time(signatures: list[str]) -> None:
    @contract()
    def compared(
        x: Ten[Local[L], Plain, BF16, UnitLast, NnzLocal, KvLoraRank],
        y: Ten[Local[L], Plain, BF16, UnitLast, NnzLocal, KvLoraRank],
        batch: CpBatch[L],
    ) -> None: ...

    batch = batch_of()
    x = local(rows_of(), Plain, batch)
    function: Any = stage(compared, mode=Mode.DEVELOPMENT)(lambda x, y, batch: None)
    for _ in range(3):
        function(x, x, batch)
    assert len(signatures) == 3


def test_an_argument_that_is_returned_in_a_later_layer_is_refused() -> None:
    batch = batch_of()
    returned = [rows_of(), rows_of()]
    function = turn_with(lambda x, *others: returned.pop() if returned else x)
    for layer in range(2):
        function(*args_of(batch.at_layer(layer)))
    text = refusal(function, *args_of(batch.at_layer(2)))
    assert text.startswith("StageOutputError DSA123: turn: returned its argument x itself\n")


def test_a_result_that_another_stage_has_branded_gets_this_stage_s_brand() -> None:
    batch = batch_of()
    inner = checked_turn()
    function = turn_with(inner)
    for layer in range(3):
        found = brand_of(function(*args_of(batch.at_layer(layer))))
        assert found is not None
        assert (found.layer, found.kind.producer) == (layer, "turn.turned")


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_calls_are_recognised_in_every_grad_mode(mode: Any, signatures: list[str]) -> None:
    batch, function = batch_of(), checked_turn()
    with mode():
        for layer in range(4):
            function(*args_of(batch.at_layer(layer)))
    assert signatures == ["layer 0"]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_is_refused_and_does_not_end_the_process() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(2)])
    batch, results = batch_of(), [rows_of(), rows_of()]
    function, checked = turn_with(lambda *args: results.pop() if results else nested), checked_turn()
    for _ in range(2):
        function(*args_of(batch))
        checked(*args_of(batch, x=rows_of()))
    for again, args in ((function, args_of(batch)), (checked, args_of(batch, x=nested))):
        with pytest.raises((ContractError, RuntimeError)):
            again(*args)


def test_a_tensor_that_no_ten_describes_is_not_compared_by_value(signatures: list[str]) -> None:
    @contract(returns=("y",))
    def biased(
        x: Ten[Local[L], Plain, BF16, UnitLast, NnzLocal, KvLoraRank], bias: Tensor | None, batch: CpBatch[L]
    ) -> Ten[Local[L], Plain, BF16, UnitLast, NnzLocal, KvLoraRank]:
        raise NotImplementedError

    batch = batch_of()
    function: Any = stage(biased, mode=Mode.DEVELOPMENT)(lambda x, bias, batch: x + 1)  # type: ignore[arg-type, return-value]
    for _ in range(3):
        function(local(rows_of(), Plain, batch), torch.zeros(2), batch)
    assert len(signatures) == 3


def test_a_batch_that_a_stage_has_seen_is_copied_and_pickled_without_its_memory() -> None:
    batch, function = batch_of(), checked_turn()
    function(*args_of(batch))
    assert batch.dims.latest
    for copied in (copy.deepcopy(batch), pickle.loads(pickle.dumps(batch))):
        assert copied.dims.dims == batch.dims.dims
        assert copied.dims.latest == {}


def test_each_batch_binds_the_dims_of_the_results_that_it_got() -> None:
    @contract(returns=("y",))
    def widened(
        x: Ten[Local[L], Plain, BF16, UnitLast, NnzLocal, KvLoraRank], batch: CpBatch[L]
    ) -> Ten[Local[L], Plain, BF16, UnitLast, NnzLocal, QkHeadDim]:
        raise NotImplementedError

    widths = [5, 5, 7, 5]
    function: Any = stage(widened, mode=Mode.DEVELOPMENT)(lambda x, batch: rows_of(3, widths.pop(0)))  # type: ignore[arg-type, return-value]
    first, second = batch_of(), batch_of()
    for batch, width in ((first, 5), (first, 5), (second, 7)):
        function(local(rows_of(), Plain, batch), batch)
        assert batch.dims.value("qk_head_dim") == width
    text = refusal(function, local(rows_of(), Plain, second), second)
    assert text.startswith("StageOutputError DSA202: widened: y has 5 qk_head_dim, qk_head_dim is 7")
