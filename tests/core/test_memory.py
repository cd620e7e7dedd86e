"""A call that passed is remembered by its signature; one that differs in anything that a contract reads is not."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from dsa_contracts import CpBatch, Mode, Ten, contract, stage
from dsa_contracts.core.brands import brand_of, make_brand
from dsa_contracts.core.invariant import Call, Invariant
from dsa_contracts.core.marks import BF16, Plain, UnitLast
from dsa_contracts.core.runtime import call_cache as memory_module
from dsa_contracts.core.views import set_brand
from dsa_contracts.dsa.dims import KvLoraRank, NnzLocal
from dsa_contracts.dsa.states import Local, Rotated, Sequence
from dsa_contracts.dsa.typevars import L
from dsa_cp.layouts import Interleave
from tests.core.toys import (
    args_of,
    batch_of,
    batches_of,
    checked_turn,
    global_rows,
    local,
    memory_of,
    raw,
    refusal,
    rows_of,
    turn_with,
)

pytestmark = pytest.mark.usefixtures("both_guards")


def new_checks(function: Callable[..., Any], *args: Any) -> int:
    """How many facts a call compares anew."""
    log = args[-1].log
    before = log.checked.get("turn", 0)
    function(*args)
    return int(log.checked.get("turn", 0) - before)


def test_a_call_that_passed_is_looked_up_and_adds_no_checks() -> None:
    batch, function = batch_of(), checked_turn()
    assert new_checks(function, *args_of(batch)) > 0
    assert new_checks(function, *args_of(batch)) == 0
    assert len(memory_of(function).calls) == 1


def test_the_same_call_in_the_next_layer_is_remembered() -> None:
    batch, function = batch_of(), checked_turn()
    assert new_checks(function, *args_of(batch.at_layer(0))) > 0
    assert [new_checks(function, *args_of(batch.at_layer(layer))) for layer in (1, 2, 61)] == [0, 0, 0]


def test_the_same_call_in_the_next_batch_is_remembered_and_binds_its_dims() -> None:
    function = checked_turn()
    assert new_checks(function, *args_of(batch_of())) > 0
    batch = batch_of()
    assert new_checks(function, *args_of(batch)) == 0
    assert batch.dims.value("kv_lora_rank") == 2


def test_the_producer_of_a_tensor_is_no_part_of_its_signature() -> None:
    batch, function = batch_of(), checked_turn()
    function(*args_of(batch))
    x = raw(rows_of(), batch)
    set_brand(x, make_brand(raw_kind(x, "another"), batch.token, None))
    assert new_checks(function, *args_of(batch, x=x)) == 0


def give_other_data(x: Any) -> None:
    x.data = rows_of(2)


@pytest.mark.parametrize("change", [lambda x: x.t_(), lambda x: x.resize_(2, 2), lambda x: x.unsqueeze_(0), give_other_data])
def test_a_tensor_whose_shape_was_changed_in_place_is_looked_at_again(change: Callable[[Any], Any]) -> None:
    batch, function = batch_of(), checked_turn()
    x = raw(rows_of(), batch)
    assert new_checks(function, *args_of(batch, x=x)) > 0
    assert new_checks(function, *args_of(batch, x=x)) == 0
    x.mul_(2)
    assert new_checks(function, *args_of(batch, x=x)) == 0
    change(x)
    assert refusal(function, *args_of(batch, x=x)).split()[1].rstrip(":") in ("DSA102", "DSA109")


def raw_kind(x: Any, producer: str) -> Any:
    brand = brand_of(x)
    assert brand is not None
    kind = brand.kind
    return type(kind)(kind.rows, kind.state, kind.variant, producer)


Change = Callable[[CpBatch[Any]], dict[str, Any]]
LEGAL: dict[str, Change] = {
    "another row stride": lambda batch: {"x": raw(rows_of(3, 5)[:, :2], batch)},
    "no brand": lambda batch: {"x": rows_of()},
    "another number": lambda batch: {"scale": 3.0},
    "an int for a float": lambda batch: {"scale": 2},
    "padded rows": lambda batch: {"x": raw(rows_of(4), batch), "positions": local(torch.arange(4), Plain, batch)},
}


@pytest.mark.parametrize("change", LEGAL)
def test_a_call_that_differs_is_checked_anew(change: str) -> None:
    batch, function = batch_of(), checked_turn()
    function(*args_of(batch))
    assert new_checks(function, *args_of(batch, **LEGAL[change](batch))) > 0
    assert new_checks(function, *args_of(batch, **LEGAL[change](batch))) == 0


def test_another_batch_size_and_another_layout_are_checked_anew() -> None:
    function = checked_turn()
    assert new_checks(function, *args_of(batch_of())) > 0
    for other in (batches_of(None, 2, 9)[0], batches_of(Interleave())[0], batches_of(Interleave(64))[0]):
        assert new_checks(function, *args_of(other)) > 0


ILLEGAL: dict[str, tuple[str, Change]] = {
    "a stale batch": ("DSA108: turn: x was made for another batch", lambda batch: {"x": raw(rows_of(), batch_of())}),
    "a stale layer": (
        "DSA108: turn: x was made for layer 1, this is layer 2",
        lambda batch: {"x": raw(rows_of(), batch.at_layer(1)), "batch": batch.at_layer(2)},
    ),
    "other rows": (
        "DSA106: turn: x holds Global[Sequence] rows, not Local[Zigzag]",
        lambda batch: {"x": global_rows(rows_of(), Sequence, Plain, batch)},
    ),
    "another state": ("DSA107: turn: x is Rotated, not Raw", lambda batch: {"x": local(rows_of(), Rotated, batch)}),
    "another dtype": ("DSA103: turn: x is f32, not bf16", lambda batch: {"x": raw(rows_of().float(), batch)}),
    "other strides": ("DSA104: turn: x has last stride 3, not 1", lambda batch: {"x": raw(rows_of(2, 3).T, batch)}),
    "another device": ("DSA105: turn: x is on meta, the batch on cpu", lambda batch: {"x": raw(rows_of().to("meta"), batch)}),
    "another shape": (
        "DSA102: turn: x has 8 kv_lora_rank, kv_lora_rank is 2, bound by turn.x",
        lambda batch: {"x": raw(rows_of(3, 8), batch)},
    ),
    "another type": ("DSA101: turn: scale is str", lambda batch: {"scale": "2.0"}),
    "nothing": ("DSA101: turn: positions is None", lambda batch: {"positions": None}),
}


@pytest.mark.parametrize("change", ILLEGAL)
def test_a_stage_that_remembers_still_refuses(change: str) -> None:
    headline, make = ILLEGAL[change]
    batch, function = batch_of(), checked_turn()
    for _ in range(3):
        function(*args_of(batch.at_layer(2)))
    args = args_of(batch, **{key: value for key, value in make(batch).items() if key != "batch"})
    changed = (*args[:3], make(batch).get("batch", batch))
    for _ in range(2):
        assert refusal(function, *changed).splitlines()[0] == f"StageInputError {headline}"


def test_another_layout_of_the_same_shape_is_refused_after_a_call_was_remembered() -> None:
    function = checked_turn()
    one, block = (batches_of(Interleave(size), 2, 128)[0] for size in (1, 64))
    function(*args_of(one))
    function(*args_of(block))
    mixed = (args_of(one)[0], *args_of(block)[1:])
    assert refusal(function, *mixed).startswith("StageInputError DSA106: turn: x is laid out as interleave, the batch as ")


def test_a_result_that_differs_is_checked_although_the_call_is_remembered() -> None:
    results = [rows_of(), rows_of(), rows_of().float()]
    function, batch = turn_with(lambda *args: results.pop(0)), batch_of()
    assert new_checks(function, *args_of(batch)) > 0
    assert new_checks(function, *args_of(batch)) == 0
    text = refusal(function, *args_of(batch))
    assert text.startswith("StageOutputError DSA203: turn: turned is f32, not bf16\n")


def test_a_call_that_fails_is_not_remembered() -> None:
    batch, function = batch_of(), turn_with(lambda *args: None)
    for _ in range(2):
        assert refusal(function, *args_of(batch)).startswith("StageOutputError DSA201: turn: turned is None\n")
    assert memory_of(function).calls == {}


def test_the_memory_is_bounded_and_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "CALLS_LIMIT", 3)
    monkeypatch.setattr(memory_module, "LATEST_LIMIT", 1)
    batch, function = batch_of(), checked_turn()
    for scale in (1.0, 2.0, 3.0, 4.0):
        assert new_checks(function, *args_of(batch, scale=scale)) > 0
    assert len(memory_of(function).calls) == 3
    assert new_checks(function, *args_of(batch, scale=4.0)) == 0
    assert new_checks(function, *args_of(batch, scale=1.0)) > 0
    assert new_checks(function, *args_of(batch, scale=2.0)) > 0


def test_the_limit_is_there() -> None:
    assert memory_module.CALLS_LIMIT == 1024


def test_the_results_that_one_call_remembers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "OUTPUT_LIMIT", 2)
    results = [torch.ones(3, 2 + at, dtype=torch.bfloat16)[:, :2].view(3, 2) for at in range(5)]
    batch = batch_of()

    @contract(returns=("y",))
    def loose(
        x: Ten[Local[L], Plain, BF16, UnitLast, NnzLocal, KvLoraRank], batch: CpBatch[L]
    ) -> Ten[Local[L], Plain, BF16, UnitLast, NnzLocal, KvLoraRank]:
        raise NotImplementedError

    function: Any = stage(loose, mode=Mode.DEVELOPMENT)(lambda x, batch: results.pop())  # type: ignore[arg-type, return-value]
    for _ in range(5):
        function(local(rows_of(), Plain, batch), batch)
    (found,) = memory_of(function).calls.values()
    assert len(found.outputs) <= 2


def starts_at_its_memory() -> Invariant:
    def check(call: Call) -> str | None:
        offset = call.tensor("x").storage_offset()
        return f"x starts at {offset}" if offset else None

    return Invariant("starts_at_its_memory", "DSA104", "x", "x starts where its memory does", False, check, reads_offset=True)


def test_where_a_tensor_starts_in_its_memory_is_remembered_where_an_invariant_reads_it() -> None:
    @contract(requires=(starts_at_its_memory(),))
    def first_only(x: Ten[Local[L], Plain, BF16, UnitLast, NnzLocal, KvLoraRank], batch: CpBatch[L]) -> None: ...

    batch, rows = batch_of(), rows_of(4)
    function: Any = stage(first_only, mode=Mode.DEVELOPMENT)(lambda x, batch: None)
    for _ in range(2):
        function(local(rows[:3], Plain, batch), batch)
    text = refusal(function, local(rows[1:], Plain, batch), batch)
    assert text.splitlines()[0] == "StageInputError DSA104: first_only: x starts at 2"


def test_an_argument_that_cannot_be_hashed_is_checked_each_time() -> None:
    @contract()
    def listed(names: list[str], batch: CpBatch[L]) -> None: ...

    batch = batch_of()
    function: Any = stage(listed, mode=Mode.DEVELOPMENT)(lambda names, batch: None)
    for _ in range(2):
        function(["a"], batch)
    assert memory_of(function).calls == {}
    assert refusal(function, [1], batch).startswith("StageInputError DSA101: listed: names is list\n")
