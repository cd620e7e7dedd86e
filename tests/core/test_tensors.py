"""`Ten` at run time: a jaxtyping class over plain tensors that carries a record."""

from typing import Any, get_args

import jaxtyping
import pytest
import torch

from dsa_contracts.core.errors import ContractDefinitionError
from dsa_contracts.core.marks import BF16, E4M3, U8, Contiguous, Plain, UnitLast, mark_text
from dsa_contracts.core.tensors import Ten, TensorSpec, describe_tensor, make_spec, spec_of, stride_fault
from tests.support.toy import (
    All,
    B,
    BoxBytes,
    Boxed,
    BoxStride,
    ByRunner,
    Cold,
    D,
    Ds,
    LargeBox,
    M,
    Mine,
    Own,
    R,
    T,
    V,
    Warm,
    Width,
)

ANNOTATION: Any = Ten
MINE: Any = Mine
ALL: Any = All
BY_RUNNER: Any = ByRunner
BOXED: Any = Boxed
OPEN: Any = get_args(tuple[*Ds])[0]  # type: ignore[valid-type]
WARM = ANNOTATION[MINE[V], Warm, E4M3, Contiguous, Own, Width]


def test_a_value_is_a_plain_tensor_and_the_class_is_jaxtypings() -> None:
    hint: Any = WARM
    assert issubclass(hint, jaxtyping.AbstractArray)
    assert isinstance(torch.zeros(3, 2, dtype=torch.float8_e4m3fn), hint)
    assert not isinstance(torch.zeros(3, dtype=torch.float8_e4m3fn), hint)
    assert not isinstance(torch.zeros(3, 2, dtype=torch.float8_e5m2), hint)


def test_the_class_carries_what_was_written() -> None:
    assert spec_of(WARM) == TensorSpec(MINE[V], Warm, E4M3, Contiguous, (Own, Width))
    assert spec_of(torch.Tensor) is None
    assert spec_of(None) is None


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        (WARM, "e4m3[own width] Contiguous, Mine[V], Warm"),
        (ANNOTATION[R, Cold, BF16, UnitLast, M, OPEN], "bf16[M *Ds] UnitLast, R, Cold"),
        (
            ANNOTATION[ALL[BY_RUNNER[V]], BOXED[B, T], U8, BoxStride, Own, BoxBytes],
            "u8[own box_bytes] BoxStride, All[ByRunner[V]], Boxed[B, T]",
        ),
        (ANNOTATION[MINE[V], Plain, D, Contiguous], "D[] Contiguous, Mine[V], Plain"),
    ],
)
def test_a_spec_is_described_in_one_line(hint: object, text: str) -> None:
    spec = spec_of(hint)
    assert spec is not None
    assert spec.describe() == text


def test_a_dtype_variable_takes_any_dtype_at_run_time() -> None:
    hint: Any = ANNOTATION[MINE[V], Plain, D, Contiguous, Own]
    assert isinstance(torch.zeros(3), hint)
    assert isinstance(torch.zeros(3, dtype=torch.bfloat16), hint)


HOW = "\n  try       Ten[Mine, Plain, BF16, Contiguous, Tokens, HiddenSize]"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ((), f"Ten takes rows, state, dtype, strides and dims, got 0 parameters{HOW}"),
        ((MINE[V], Plain, BF16), f"Ten takes rows, state, dtype, strides and dims, got 3 parameters{HOW}"),
        ((Plain, MINE[V], BF16, Contiguous), "Plain does not name the rows of a tensor"),
        ((MINE[V], MINE[V], BF16, Contiguous), "Mine[V] does not name the state of a tensor"),
        ((MINE[V], Plain, torch.bfloat16, Contiguous), "torch.bfloat16 does not name the dtype of a tensor"),
        ((MINE[V], Plain, BF16, Own), "Own does not name the strides of a tensor"),
        ((MINE[V], Plain, BF16, Contiguous, 512), "512 does not name a dim"),
        ((MINE[V], Plain, BF16, Contiguous, BF16), "BF16 does not name a dim"),
        ((MINE[V], Plain, BF16, Contiguous, "total"), "total does not name a dim"),
        ((MINE[V], Plain, BF16, Contiguous, OPEN, Own), "a dim follows *Ds"),
    ],
)
def test_parameters_out_of_place_are_refused_where_they_are_written(params: tuple[object, ...], message: str) -> None:
    with pytest.raises(ContractDefinitionError) as error:
        make_spec(params)
    assert str(error.value) == f"ContractDefinitionError DSA001: {message}"


def test_a_single_parameter_is_refused_by_the_annotation_itself() -> None:
    with pytest.raises(ContractDefinitionError) as error:
        ANNOTATION[Plain]
    message = "ContractDefinitionError DSA001: Ten takes rows, state, dtype, strides and dims, got 1 parameters"
    assert str(error.value) == message + HOW


def test_marks_are_shown_as_they_are_written() -> None:
    shown = [mark_text(mark) for mark in (Plain, R, BOXED[LargeBox, Warm], ALL[BY_RUNNER[V]], 5)]
    assert shown == ["Plain", "R", "Boxed[LargeBox, Warm]", "All[ByRunner[V]]", "5"]


WIDE = torch.zeros(3, 8)


@pytest.mark.parametrize(
    ("tensor", "strides", "row_bytes", "fault"),
    [
        (WIDE, Contiguous, None, None),
        (WIDE[:, :4], Contiguous, None, "not contiguous"),
        (WIDE[:, :4], UnitLast, None, None),
        (WIDE.T, UnitLast, None, "last stride 8, not 1"),
        (WIDE[:, ::2], UnitLast, None, "last stride 2, not 1"),
        (WIDE[:, ::8], UnitLast, None, None),
        (WIDE[:, :4], BoxStride, 32, None),
        (WIDE[:, :4], BoxStride, 16, "rows 32 bytes apart, not 16"),
        (WIDE[:1, :4], BoxStride, 16, None),
        (WIDE[:0].T, UnitLast, None, None),
        (WIDE[0, 0], BoxStride, 16, None),
        (WIDE[:0, ::2], Contiguous, None, None),
    ],
)
def test_a_stride_is_at_fault_only_where_it_matters(
    tensor: Any, strides: object, row_bytes: int | None, fault: str | None
) -> None:
    assert stride_fault(tensor, strides, row_bytes) == fault


def test_values_are_described_in_one_line() -> None:
    assert describe_tensor(WIDE[:, ::2]) == "f32[3, 4] strides (8, 2) cpu"
    assert describe_tensor(torch.zeros(2, dtype=torch.int16)) == "int16[2] strides (1,) cpu"
    assert describe_tensor(None) == "None"
    assert describe_tensor([torch.zeros(2, 1)]) == "list [tensor([[0.], [0.]])]"
