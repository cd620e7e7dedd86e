"""Dims bound once for a batch and shared by its stages, and the log of what was checked."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from dsa_contracts import CpBatch, Mode, Ten, brand, checking_values, contract, stage
from dsa_contracts.core.bound_dims import Bound, BoundDims, CheckLog
from dsa_contracts.core.marks import BF16, Contiguous, Plain, UnitLast
from dsa_contracts.dsa.dims import KvLoraRank, QkRopeHeadDim
from dsa_contracts.dsa.states import Local, Raw, Sequence
from dsa_contracts.dsa.typevars import L, N
from dsa_cp.layer.models import MODELS
from dsa_cp.stages import rebuild_positions
from tests.core.toys import (
    AVERAGE,
    args_of,
    batch_of,
    checked_average,
    checked_turn,
    global_rows,
    raw,
    refusal,
    rows_of,
    turn_with,
)

BATCH = "batch (zigzag, cp_rank 0 of 2)"


def test_the_batch_binds_the_row_counts() -> None:
    assert batch_of().dims.dims == {
        "nnz": Bound(7, BATCH),
        "nnz_local": Bound(3, BATCH),
        "nnz_padded": Bound(4, BATCH),
        "nnz_gathered": Bound(8, BATCH),
        "num_requests": Bound(1, BATCH),
    }


def test_the_first_binder_keeps_a_dim() -> None:
    dims = BoundDims()
    dims.bind("nnz", 7, "batch")
    dims.bind("nnz", 7, "turn.x")
    assert dims.dims == {"nnz": Bound(7, "batch")}
    assert (dims.value("nnz"), dims.value("nnz_local")) == (7, None)
    assert dims.agrees((("nnz", 7, "x"), ("nnz_local", 3, "x")))
    assert not dims.agrees((("nnz", 8, "x"),))
    dims.bind("nnz_local", 3, "batch")
    assert dims.describe() == "nnz=7, nnz_local=3"


def test_a_dim_that_one_stage_binds_holds_for_the_next_and_the_binder_is_named() -> None:
    batch = batch_of()
    checked_turn()(*args_of(batch))
    assert batch.dims.dims["kv_lora_rank"] == Bound(2, "turn.x")
    text = refusal(checked_average(), global_rows(rows_of(7, 8), Sequence, Plain, batch), batch)
    assert text == (
        "StageInputError DSA102: average: x has 8 kv_lora_rank, kv_lora_rank is 2, bound by turn.x\n"
        "  expected  bf16[nnz kv_lora_rank] Contiguous, Global[Sequence], Plain; "
        f"nnz=7, bound by {BATCH}; kv_lora_rank=2, bound by turn.x\n"
        "  got       bf16[7, 8] strides (8, 1) cpu\n"
        "  where     cp_rank=0 of 2, zigzag\n"
        f"  contract  {AVERAGE}"
    )
    assert checked_average()(global_rows(rows_of(7), Sequence, Plain, batch), batch).shape == (7, 2)


def test_a_model_binds_its_dims_in_its_name() -> None:
    batch = batch_of()
    MODELS["tiny"].bind(batch)
    text = refusal(checked_turn(), *args_of(batch))
    assert text.splitlines()[0] == (
        "StageInputError DSA102: turn: x has 2 kv_lora_rank, kv_lora_rank is 128, bound by model tiny"
    )
    assert checked_turn()(*args_of(batch, x=rows_of(3, 128))).shape == (3, 128)


@pytest.mark.parametrize("remembered", [False, True])
def test_each_batch_has_its_own_dims_whether_the_call_is_remembered_or_not(remembered: bool) -> None:
    function = checked_turn()
    if remembered:
        function(*args_of(batch_of()))
    other = batch_of()
    MODELS["tiny"].bind(other)
    assert "kv_lora_rank is 128, bound by model tiny" in refusal(function, *args_of(other))
    third = batch_of()
    function(*args_of(third))
    assert third.dims.dims["kv_lora_rank"] == Bound(2, "turn.x")


def refused_for_its_last_argument(batch: CpBatch[Any]) -> None:
    refusal(checked_turn(), *args_of(batch, scale="2"))


def refused_for_its_result(batch: CpBatch[Any]) -> None:
    refusal(turn_with(lambda x, *args: x.float()), *args_of(batch))


def refused_by_the_implementation(batch: CpBatch[Any]) -> None:
    def fail(*args: Any) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        turn_with(fail)(*args_of(batch))


@pytest.mark.parametrize("fail", [refused_for_its_last_argument, refused_for_its_result, refused_by_the_implementation])
def test_a_call_that_fails_binds_nothing(fail: Any) -> None:
    batch = batch_of()
    fail(batch)
    assert batch.dims.value("kv_lora_rank") is None
    assert batch.log == CheckLog()
    assert checked_turn()(*args_of(batch, x=rows_of(3, 8))).shape == (3, 8)


@contract(returns=("wide",))
def widen(
    x: Ten[Local[L], Raw, BF16, UnitLast, N, QkRopeHeadDim], batch: CpBatch[L]
) -> Ten[Local[L], Raw, BF16, Contiguous, N, KvLoraRank]:
    raise NotImplementedError


@pytest.mark.parametrize("remembered", [False, True])
def test_a_result_binds_dims_and_is_bound_by_them_as_an_argument_is(remembered: bool) -> None:
    function: Any = stage(widen, mode=Mode.DEVELOPMENT)(lambda x, batch: brand(x.repeat(1, 2)))
    first, second = batch_of(), batch_of()
    if remembered:
        function(raw(rows_of(), first), first)
        assert first.dims.dims["kv_lora_rank"] == Bound(4, "widen.wide")
    MODELS["tiny"].bind(second)
    second.dims.dims["qk_rope_head_dim"] = Bound(2, "test")
    text = refusal(function, raw(rows_of(), second), second)
    assert text.splitlines()[0] == (
        "StageOutputError DSA202: widen: wide has 4 kv_lora_rank, kv_lora_rank is 128, bound by model tiny"
    )


def test_all_layers_of_a_batch_share_dims_and_log() -> None:
    batch, function = batch_of(), checked_turn()
    function(*args_of(batch.at_layer(0)))
    assert "bound by turn.x" in refusal(function, *args_of(batch.at_layer(1), x=rows_of(3, 8)))
    assert batch.log.calls == {"turn": 1}


def test_the_log_counts_calls_new_checks_and_tensors_without_brand() -> None:
    batch, function = batch_of(), checked_turn()
    function(*args_of(batch))
    counted = batch.log.checked["turn"]
    function(*args_of(batch))
    function(*args_of(batch, x=rows_of()))
    assert batch.log.calls == {"turn": 3}
    assert batch.log.unknown == {"turn": 1}
    assert batch.log.checked["turn"] > counted
    rebuild_positions(batch.positions, batch.local_rows, batch)
    assert batch.log.calls == {"turn": 3, "rebuild_positions": 1}


def test_values_that_were_read_are_counted() -> None:
    first = batch_of()
    rebuild_positions(first.positions, first.local_rows, first)
    batch = batch_of()
    rebuild_positions(batch.positions, batch.local_rows, batch)
    assert batch.log.checked == {}
    with checking_values():
        rebuild_positions(batch.positions, batch.local_rows, batch)
    assert batch.log.checked["rebuild_positions"] > 0


def test_ranks_in_threads_do_not_share_dims() -> None:
    function, gate = checked_turn(), Barrier(4)
    batches = [batch_of(rank, cp_size=4) for rank in range(4)]

    def run(rank: int) -> list[int]:
        gate.wait(10)
        widths = []
        for _ in range(20):
            turned = function(*args_of(batches[rank], x=rows_of(batches[rank].nnz_local, rank + 1)))
            widths.append(turned.shape[1])
        return widths

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(4))) == [[rank + 1] * 20 for rank in range(4)]
    assert [batch.dims.value("kv_lora_rank") for batch in batches] == [1, 2, 3, 4]
    assert [batch.log.calls["turn"] for batch in batches] == [20] * 4


def test_dims_are_bound_from_tensors_too_large_to_multiply() -> None:
    batch = batch_of()
    for name in ("kv_lora_rank", "num_local_heads", "qk_rope_head_dim"):
        batch.dims.bind(name, 2**40, "a large model")
    text = refusal(checked_turn(), *args_of(batch))
    assert "kv_lora_rank is 1099511627776, bound by a large model" in text
