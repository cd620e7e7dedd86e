"""Tensors are recognised by shape, strides, dtype and device; each difference alone is enough to say no."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from dsa_contracts.core.runtime import guards
from dsa_contracts.core.runtime.guards import SameTensors, same_tensors


@pytest.fixture(params=[True, False], ids=["torch", "python"])
def same(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SameTensors:
    """What recognises a pair, in each of the two ways."""
    monkeypatch.setattr(guards, "HAS_GUARDS", request.param and guards.HAS_GUARDS)
    found = same_tensors(pair())
    assert found is not None
    return found


def pair() -> tuple[Tensor, Tensor]:
    """Rows of 5 values that are 8 apart, and an index."""
    return torch.zeros(3, 8, dtype=torch.bfloat16)[:, :5], torch.arange(3)


def test_other_tensors_with_the_same_facts_are_recognised(same: SameTensors) -> None:
    rows, index = pair()
    assert same(rows, index)
    assert same(torch.ones(9, 8, dtype=torch.bfloat16)[6:, :5], index + 7)


DIFFERENT: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "a row less": lambda rows, index: (rows[:2], index),
    "a column more": lambda rows, index: (torch.zeros(3, 8, dtype=torch.bfloat16)[:, :6], index),
    "another row stride": lambda rows, index: (rows.contiguous(), index),
    "transposed": lambda rows, index: (torch.zeros(5, 3, dtype=torch.bfloat16).t(), index),
    "a dim more": lambda rows, index: (rows[None], index),
    "another dtype of the same width": lambda rows, index: (rows.view(torch.float16), index),
    "the second one differs": lambda rows, index: (rows, index.int()),
    "another device": lambda rows, index: (rows, index.to("meta")),
    "exchanged": lambda rows, index: (index, rows),
}


@pytest.mark.parametrize("change", DIFFERENT)
def test_each_difference_is_seen(same: SameTensors, change: str) -> None:
    assert not same(*DIFFERENT[change](*pair()))


def test_what_is_no_plain_tensor_is_never_recognised(same: SameTensors) -> None:
    rows, index = pair()
    assert not same(rows, None)
    assert not same(rows, index.numpy())

    class Marked(Tensor):
        """A tensor with a name of its own."""

    assert not same(rows.as_subclass(Marked), index)


def test_there_is_nothing_to_go_by_for_subclasses_symbols_and_one_tensor_twice() -> None:
    rows, index = pair()
    assert same_tensors((rows, rows)) is None
    with FakeTensorMode(shape_env=ShapeEnv()) as mode:
        assert same_tensors((mode.from_tensor(rows), index)) is None
    assert same_tensors((torch.zeros(2, 2).to_sparse(),)) is None


def test_a_parameter_is_a_plain_tensor() -> None:
    weight = torch.nn.Parameter(torch.zeros(2, 2))
    same = same_tensors((weight,))
    assert same is not None
    assert same(torch.nn.Parameter(torch.ones(2, 2)))


def test_torch_has_the_guards_here() -> None:
    assert guards.HAS_GUARDS


@pytest.mark.parametrize("version", ["2.10.1", "2.15.0a0+git1", "3.0.0"])
def test_a_torch_that_was_not_tried_gets_the_comparison_in_python(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    assert not guards._has_guards()


@pytest.mark.parametrize("version", ["2.11.0+cu130", "2.14.1+cpu"])
def test_versions_that_were_tried_get_torchs_guards(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    assert guards._has_guards()
