"""`@stage`: how a call is made, and what of an implementation it refuses."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from dsa_contracts import CpBatch, Mode, RopeStyle, Ten, contract, contract_of, stage, unchecked_function
from dsa_contracts import stages as contracts
from dsa_contracts.core.errors import ContractDefinitionError
from dsa_contracts.core.marks import BF16, F32, Contiguous, Plain, UnitLast
from dsa_contracts.dsa.dims import KvLoraRank
from dsa_contracts.dsa.row_formats import bf16_format, fp8_format
from dsa_contracts.dsa.states import Global, Local, Positions, Rotated, Sequence
from dsa_contracts.dsa.typevars import AD, C, L, N
from dsa_cp.layouts import Interleave, Zigzag
from dsa_cp.stages import pack_kv
from tests.core.toys import (
    TURN,
    args_of,
    bare_turn,
    batch_of,
    batches_of,
    checked_turn,
    local,
    raw,
    refusal,
    rows_of,
    turn,
    turn_with,
)


def test_arguments_may_be_given_by_name_in_any_order() -> None:
    batch, function = batch_of(), checked_turn()
    x, positions, scale, _ = args_of(batch)
    by_name = function(batch=batch, scale=scale, positions=positions, x=x)
    mixed = function(x, positions, batch=batch, scale=scale)
    assert by_name.tolist() == mixed.tolist() == [[2.0, 2.0]] * 3
    assert batch.log.calls == {"turn": 2}


WANTED = f"\n  expected  x, positions, scale, batch\n  contract  {TURN}"


def test_missing_unknown_doubled_and_too_many_arguments_are_refused_by_name() -> None:
    batch, function = batch_of(), checked_turn()
    args = args_of(batch)
    missing = refusal(function, *args[:2], batch=batch)
    assert missing == f"StageInputError DSA101: turn: missing a required argument: 'scale'{WANTED}"
    unknown = refusal(function, *args, more=1)
    assert unknown == f"StageInputError DSA101: turn: got an unexpected keyword argument 'more'{WANTED}"
    doubled = refusal(function, *args, x=args[0])
    assert doubled == f"StageInputError DSA101: turn: multiple values for argument 'x'{WANTED}"
    too_many = refusal(function, *args, 5)
    assert too_many == f"StageInputError DSA101: turn: too many positional arguments{WANTED}"


@pytest.mark.parametrize("value", [None, "batch", CpBatch])
def test_a_batch_is_needed(value: object) -> None:
    text = refusal(checked_turn(), *args_of(batch_of())[:3], value)
    kind = type(value).__name__
    assert text == f"StageInputError DSA101: turn: batch is {kind}\n  expected  CpBatch\n  contract  {TURN}"


def test_an_int_is_a_float_as_it_is_for_the_type_checker_and_a_text_is_not() -> None:
    batch, function = batch_of(), checked_turn()
    assert function(*args_of(batch, scale=3)).tolist() == [[3.0, 3.0]] * 3
    assert refusal(function, *args_of(batch, scale="3")) == (
        "StageInputError DSA101: turn: scale is str\n"
        "  expected  float\n"
        "  got       str '3'\n"
        "  where     cp_rank=0 of 2, zigzag\n"
        f"  contract  {TURN}"
    )


@contract(returns=("y",))
def with_default(
    x: Ten[Local[L], Plain, BF16, UnitLast, N, KvLoraRank], batch: CpBatch[L], factor: float = 2.0
) -> Ten[Local[L], Plain, BF16, Contiguous, N, KvLoraRank]:
    raise NotImplementedError


def test_a_default_is_filled_in() -> None:
    @stage(with_default, mode=Mode.DEVELOPMENT)
    def scaled(x: Any, batch: CpBatch[Any], factor: float = 2.0) -> Any:
        return x * factor

    batch = batch_of()
    x = local(rows_of(), Plain, batch)
    assert scaled(x, batch).tolist() == [[2.0, 2.0]] * 3
    assert scaled(x, batch, factor=3.0).tolist() == [[3.0, 3.0]] * 3


def refused_implementation(stub: Callable[..., Any], function: Callable[..., Any]) -> str:
    with pytest.raises(ContractDefinitionError) as error:
        stage(stub, mode=Mode.PRODUCTION)(function)
    return str(error.value)


def test_an_implementation_with_other_parameters_is_refused_in_every_mode() -> None:
    def renamed(x: Any, position: Any, scale: Any, batch: Any) -> Any: ...

    assert refused_implementation(turn, renamed) == (
        "ContractDefinitionError DSA002: renamed is not an implementation of turn\n"
        "  expected  x, positions, scale, batch\n"
        "  got       x, position, scale, batch\n"
        f"  contract  {TURN}"
    )


def test_parameters_in_another_order_one_more_or_another_default_are_refused() -> None:
    def swapped(positions: Any, x: Any, scale: Any, batch: Any) -> Any: ...

    def longer(x: Any, positions: Any, scale: Any, batch: Any, more: int = 0) -> Any: ...

    def other_default(x: Any, batch: Any, factor: float = 1.0) -> Any: ...

    assert "\n  got       positions, x, scale, batch\n" in refused_implementation(turn, swapped)
    assert "\n  got       x, positions, scale, batch, more=0\n" in refused_implementation(turn, longer)
    text = refused_implementation(with_default, other_default)
    assert "\n  expected  x, batch, factor=2.0\n  got       x, batch, factor=1.0\n" in text


def test_a_stage_is_bound_to_a_contract_and_to_nothing_else() -> None:
    with pytest.raises(ContractDefinitionError) as error:
        stage(rows_of)
    assert str(error.value) == "ContractDefinitionError DSA001: rows_of is not decorated with @contract or @stage"


def test_unchecked_function_gives_the_implementation() -> None:
    assert unchecked_function(checked_turn()) is bare_turn
    assert unchecked_function(bare_turn) is bare_turn


def returned(*values: Any) -> str:
    body = (lambda *args: values) if len(values) != 1 else lambda *args: values[0]
    return refusal(turn_with(body), *args_of(batch_of()))


def test_another_number_of_return_values_is_refused() -> None:
    facts = f"\n  where     cp_rank=0 of 2, zigzag\n  contract  {TURN}"
    assert returned(rows_of(), 5) == (
        "StageOutputError DSA201: turn: returned 2 values, its contract has 1\n"
        f"  expected  turned\n  got       Tensor, int{facts}"
    )
    empty = f"returned 0 values, its contract has 1\n  expected  turned\n  got       no return value{facts}"
    assert returned() == f"StageOutputError DSA201: turn: {empty}"


def test_a_stage_that_works_in_place_must_return_nothing() -> None:
    @contract()
    def fill(x: Ten[Local[L], Plain, BF16, UnitLast, N, KvLoraRank], batch: CpBatch[L]) -> None: ...

    batch = batch_of()
    x = local(rows_of(), Plain, batch)
    stage(fill, mode=Mode.DEVELOPMENT)(lambda x, batch: None)(x, batch)
    assert batch.log.calls == {"fill": 1}
    text = refusal(stage(fill, mode=Mode.DEVELOPMENT)(lambda x, batch: x), x, batch)
    assert text == (
        "StageOutputError DSA201: fill: returned 1 values, its contract has 0\n"
        "  expected  no return value\n"
        "  got       Tensor\n"
        "  where     cp_rank=0 of 2, zigzag\n"
        f"  contract  {contract_of(fill).location}"
    )


def test_an_output_that_is_an_input_object_is_refused_and_a_view_of_it_is_not() -> None:
    batch = batch_of()
    text = refusal(turn_with(lambda x, *args: x), *args_of(batch))
    assert text == (
        "StageOutputError DSA123: turn: returned its argument x itself\n"
        "  got       bf16[3, 2] strides (2, 1) cpu\n"
        "  where     cp_rank=0 of 2, zigzag\n"
        f"  contract  {TURN}\n"
        "  try       return a view of it: a brand is on an object"
    )
    assert turn_with(lambda x, *args: x.view(3, 2))(*args_of(batch)).tolist() == [[1.0, 1.0]] * 3


def test_an_implementations_own_error_passes_through_as_it_is() -> None:
    def divide(*args: Any) -> Any:
        raise ZeroDivisionError("1 / 0")

    with pytest.raises(ZeroDivisionError, match=r"^1 / 0$"):
        turn_with(divide)(*args_of(batch_of()))


def test_a_row_format_of_another_kind_is_refused_and_one_of_its_kind_is_not() -> None:
    batch = batch_of()
    k_nope, k_rope = local(rows_of(), Plain, batch), local(rows_of(), Rotated, batch)
    assert pack_kv(k_nope, k_rope, bf16_format(2, 2), batch).shape == (3, 8)
    wrong: Any = fp8_format(2, 2)
    text = refusal(pack_kv, k_nope, k_rope, wrong, batch)
    assert text.splitlines()[:2] == [
        "StageInputError DSA101: pack_kv: row_format is RowFormat[Fp8Row, E4M3, E4M3]",
        "  expected  RowFormat[Bf16Row, BF16, BF16]",
    ]


def test_open_dims_are_the_same_in_and_out() -> None:
    batch = batch_of()
    positions, table = local(batch.positions[batch.local_rows], Positions, batch), torch.zeros(7, 2)

    def turned(shape: tuple[int, ...]) -> Callable[..., Any]:
        def body(x: Any, positions: Any, cos_sin_cache: Any, rope_dim: Any, rope_style: Any, batch: Any) -> Any:
            return x.reshape(shape)

        return stage(contracts.apply_rope, mode=Mode.DEVELOPMENT)(body)

    args = (raw(rows_of(3, 4).view(3, 2, 2), batch), positions, table, 2, RopeStyle.NEOX, batch)
    assert turned((3, 2, 2))(*args).shape == (3, 2, 2)
    for shape in ((3, 4), (3, 1, 4), (3, 4, 1)):
        assert refusal(turned(shape), *args).splitlines()[0] == (
            f"StageOutputError DSA202: apply_rope: rotated has shape {list(shape)}, which an earlier argument contradicts"
        )


@contract(returns=("y",))
def of_zigzag(
    out_dtype: type[AD], strides: type[C], batch: CpBatch[Zigzag]
) -> Ten[Global[Sequence], Plain, AD, C, KvLoraRank]:
    raise NotImplementedError


def test_a_dtype_class_strides_class_and_layout_must_be_such() -> None:
    def body(out_dtype: Any, strides: Any, batch: Any) -> Any:
        return rows_of(1, 8)[0].to(out_dtype.torch_dtype)[::1]

    function: Any = stage(of_zigzag, mode=Mode.DEVELOPMENT)(body)
    batch, other = batch_of(), batches_of(Interleave())[0]
    assert function(F32, Contiguous, batch).tolist() == [1.0] * 8
    assert refusal(function, int, Contiguous, batch).startswith("StageInputError DSA101: of_zigzag: out_dtype is type\n")
    assert refusal(function, F32, F32, batch).startswith("StageInputError DSA101: of_zigzag: strides is type\n")
    text = refusal(function, F32, UnitLast, other)
    assert text.startswith("StageInputError DSA101: of_zigzag: batch is CpBatch[Interleave]\n")
