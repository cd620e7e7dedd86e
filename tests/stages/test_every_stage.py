"""What every stage refuses of every tensor that it takes, and what it does not; each stage's own file has its own codes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, Mode, brand_of, checking_values, contract_of, stage, unchecked_function
from dsa_contracts.core.brands import make_brand
from dsa_contracts.core.marks import Contiguous, Plain, dim_text
from dsa_contracts.core.matching import unify
from dsa_contracts.core.views import set_brand
from dsa_contracts.dsa.states import Local, PerRequest, Pool, Raw, Rotated, Table
from dsa_cp.comm import run_ranks
from dsa_cp.layouts import Interleave, Zigzag
from tests.support.branded import batches
from tests.support.stage_calls import COLLECTIVE, LOCAL, STAGES, call, refused, valid_args

OPEN_ROWS = {"max_position", "num_pages", "K"}
"""Dims that no other argument and no batch fixes; K may be rows that were read from a pool."""
TENSORS = [(name, param) for name in STAGES for param in contract_of(STAGES[name]).params if param.spec]
every_tensor = pytest.mark.parametrize(("name", "param"), [(name, param.name) for name, param in TENSORS])
WITH_ROWS = [
    (name, param.name)
    for name, param in TENSORS
    if param.spec and len(param.spec.dims) > 1 and name in LOCAL and name != "split_kv"
]
"""Left out: a collective needs its other ranks, and the views of split_kv keep the stride of what they are views of."""


def branded_as(tensor: Tensor, like: Tensor) -> Tensor:
    set_brand(tensor, brand_of(like))
    return tensor


def rebranded(tensor: Tensor, batch: CpBatch[Any], *, token: object = None, layer: int | None = None, **kind: Any) -> Tensor:
    """The same rows under a brand of which some parts are others."""
    old = brand_of(tensor)
    assert old is not None
    copy = tensor.clone(memory_format=torch.preserve_format)
    set_brand(copy, make_brand(replace(old.kind, **kind), token or old.scope_token, layer))
    return copy


def other_state(tensor: Tensor, batch: CpBatch[Any]) -> Tensor:
    """As a second rotation, or a rotation of what no rotation concerns, would leave the brand."""
    old = brand_of(tensor)
    assert old is not None
    return rebranded(tensor, batch, state=Rotated if unify(Plain, old.kind.state, {}) or old.kind.state is Raw else Raw)


def spread(tensor: Tensor, batch: CpBatch[Any]) -> Tensor:
    return torch.stack([tensor, tensor], dim=-1)[..., 0]


Fault = Callable[[Tensor, CpBatch[Any]], object]
FAULTS: dict[str, tuple[str, Fault]] = {
    "missing": ("DSA101", lambda tensor, batch: None),
    "a list": ("DSA101", lambda tensor, batch: tensor.tolist()),
    "one row less": ("DSA102", lambda tensor, batch: branded_as(tensor[:-1], tensor)),
    "another dtype": ("DSA103", lambda tensor, batch: tensor.double()),
    "elements apart": ("DSA104", spread),
    "another device": ("DSA105", lambda tensor, batch: tensor.to("meta")),
    "rows of another layout": (
        "DSA106",
        lambda tensor, batch: rebranded(tensor, batch, rows=Local[Interleave], variant="other"),
    ),
    "another state": ("DSA107", other_state),
    "another batch": ("DSA108", lambda tensor, batch: rebranded(tensor, batch, token=object())),
    "another layer": ("DSA108", lambda tensor, batch: rebranded(tensor, batch, layer=4)),
    "no dims": ("DSA109", lambda tensor, batch: tensor.flatten()[0]),
}


def left_open(name: str, param: str) -> set[str]:
    """The faults that are none under a contract: rows that nothing else counts, a state that is passed on."""
    specs = {record.name: record.spec for record in contract_of(STAGES[name]).params if record.spec}
    spec = specs[param]
    rows = dim_text(spec.dims[0])
    found = {"one row less"} if rows in OPEN_ROWS else set()
    return found | ({"another state"} if isinstance(spec.state, TypeVar) else set())


@every_tensor
def test_each_fault_of_a_tensor_is_refused_with_its_code(name: str, param: str) -> None:
    batch = batches()[0].at_layer(3)
    args = valid_args(name, batch)
    found = {}
    for fault in (fault for fault in FAULTS if fault not in left_open(name, param)):
        error = refused(name, args, **{param: FAULTS[fault][1](args[param], batch)})
        assert error.headline.startswith(f"{name}: ")
        found[fault] = error.code
    assert found == {fault: FAULTS[fault][0] for fault in found}


@pytest.mark.parametrize(("name", "param"), WITH_ROWS)
def test_a_row_stride_is_refused_where_rows_must_be_dense_and_taken_elsewhere(name: str, param: str) -> None:
    batch = batches()[0]
    args = valid_args(name, batch)
    spec = next(record.spec for stage_name, record in TENSORS if (stage_name, record.name) == (name, param))
    width = args[param].shape[-1]
    strided = branded_as(torch.cat([args[param], args[param]], dim=-1)[..., :width], args[param])
    if spec is not None and spec.strides is Contiguous:
        assert refused(name, args, **{param: strided}).code == "DSA104"
    else:
        for got, want in zip(flat(call(name, args, **{param: strided})), flat(call(name, args)), strict=True):
            assert got.view(torch.uint8).tolist() == want.view(torch.uint8).tolist()


def flat(result: object) -> list[Tensor]:
    return [part for part in (result if isinstance(result, tuple) else (result,)) if isinstance(part, Tensor)]


@pytest.mark.parametrize(("name", "param"), [(name, param.name) for name, param in TENSORS if name in LOCAL])
def test_a_tensor_that_does_not_state_its_rows_is_counted_and_refused_in_values_mode_unless_its_values_say(
    name: str, param: str
) -> None:
    batch = batches()[0]
    args = valid_args(name, batch)
    args[param] = args[param].detach().clone()
    call(name, args)
    assert batch.log.unknown == {name: 1}
    contract = contract_of(STAGES[name])
    (spec,) = (record.spec for record in contract.params if record.name == param)
    says = {invariant.subject for invariant in contract.requires if invariant.shows_rows}
    with checking_values():
        if param in says or (spec and spec.rows in (Pool, PerRequest, Table)):
            call(name, args)
        else:
            assert refused(name, args).code == "DSA125"


@pytest.mark.parametrize("name", LOCAL)
def test_a_legal_call_passes_in_development_and_in_values_mode_on_both_ranks(name: str) -> None:
    for rank in (0, 1):
        batch = batches()[rank]
        call(name, valid_args(name, batch))
        with checking_values():
            call(name, valid_args(name, batch))
        assert batch.log.calls[name] == 2
        assert batch.log.unknown == {}


@pytest.mark.parametrize("name", [name for name in LOCAL if name not in ("restore_order", "write_kv")])
def test_a_rank_without_a_token_gets_no_rows(name: str) -> None:
    batch = batches(Zigzag(), 4, [3], [0])[3]
    with checking_values():
        assert all(part.shape[0] == 0 for part in flat(call(name, valid_args(name, batch))))


@pytest.mark.parametrize("name", sorted(COLLECTIVE))
def test_a_legal_collective_passes_in_values_mode(name: str) -> None:
    made = batches()
    with checking_values():
        run_ranks(2, lambda comm: call(name, valid_args(name, made[comm.rank]), comm=comm))
    assert [(batch.log.calls, batch.log.unknown) for batch in made] == [({name: 1}, {})] * 2


@pytest.mark.parametrize("name", STAGES)
def test_a_missing_argument_and_an_unknown_one_are_named(name: str) -> None:
    args = valid_args(name, batches()[0])
    lacking = {key: value for key, value in args.items() if key != next(iter(args))}
    error = refused(name, lacking)
    assert (error.code, error.headline) == ("DSA101", f"{name}: missing a required argument: {next(iter(args))!r}")
    assert refused(name, args, more=1).headline == f"{name}: got an unexpected keyword argument 'more'"
    assert refused(name, args, batch=None).headline == f"{name}: batch is NoneType"


@pytest.mark.parametrize("name", STAGES)
def test_production_leaves_the_function_itself(name: str) -> None:
    bare = unchecked_function(STAGES[name])
    assert stage(getattr(contracts, name), mode=Mode.PRODUCTION)(bare) is bare
