"""Arguments that dtype and dims do not tell apart: development mode refuses each exchange, whatever the sizes are."""

from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import CpBatch, Mode, brand, brand_of, contract, contract_of, stage
from dsa_contracts.core.marks import I32, I64, Plain
from dsa_contracts.core.views import set_brand
from dsa_contracts.dsa.aliases import CausalLens, TopkIndices
from dsa_contracts.dsa.states import KeyIds, Local, Positions
from dsa_contracts.dsa.typevars import L, N
from dsa_cp.layouts import Zigzag
from tests.support.branded import INDEX_TENSORS, TOPK, batches, local
from tests.support.messages import contract_and_ran
from tests.support.stage_calls import COLLECTIVE, STAGES, call, refused, valid_args
from tests.support.swaps import SWAPS


def one_rank() -> CpBatch[Any]:
    """All rows on one rank, without padding: every count of rows is 5, so that no size tells anything."""
    batch = batches(Zigzag(), 1, [5], [0])[0]
    assert set(batch.row_counts.values()) == {5, 1}
    return batch


def as_other(tensor: Tensor, other: Tensor) -> Tensor:
    """A tensor of the sizes of one argument, under the brand of another."""
    copy = tensor.clone()
    set_brand(copy, brand_of(other))
    return copy


@pytest.mark.parametrize(("name", "first", "second"), SWAPS)
@pytest.mark.parametrize("of", ["two ranks", "one rank"])
def test_two_arguments_that_are_swapped_are_refused_with_a_code(name: str, first: str, second: str, of: str) -> None:
    batch = one_rank() if of == "one rank" else batches()[0]
    args = valid_args(name, batch)
    error = refused(name, args, **{first: args[second], second: args[first]})
    assert error.headline.startswith(f"{name}: ")
    assert error.code in ("DSA102", "DSA103", "DSA106", "DSA107")


@pytest.mark.parametrize(("name", "first", "second"), SWAPS)
def test_brands_alone_tell_them_apart_where_sizes_and_dtypes_are_equal(name: str, first: str, second: str) -> None:
    args = valid_args(name, one_rank())
    for wanted, other in ((first, second), (second, first)):
        error = refused(name, args, **{wanted: as_other(args[wanted], args[other])})
        assert error.headline.startswith(f"{name}: {wanted} ")
        assert error.code in ("DSA106", "DSA107")
    if name not in COLLECTIVE:
        call(name, args, **{first: as_other(args[first], args[first])})


def index_params() -> list[tuple[str, str]]:
    """The integer arguments of every stage."""
    params = [(name, param) for name in STAGES for param in contract_of(STAGES[name]).params if param.spec]
    return [(name, param.name) for name, param in params if param.spec and param.spec.dtype in (I32, I64)]


@pytest.mark.parametrize(("name", "param"), index_params())
def test_no_index_tensor_of_a_batch_stands_for_another(name: str, param: str) -> None:
    batch = one_rank()
    args = valid_args(name, batch)
    (spec,) = (record.spec for record in contract_of(STAGES[name]).params if record.name == param)
    assert spec is not None
    assert isinstance(spec.state, type)
    assert issubclass(spec.state, Plain)
    assert spec.state is not Plain
    tried = []
    for other in INDEX_TENSORS:
        given = getattr(batch, other)
        known = brand_of(given)
        assert known is not None
        if known.kind.state is not spec.state:
            error = refused(name, args, **{param: as_other(args[param], given)})
            assert (error.code in ("DSA106", "DSA107"), error.headline.split()[1]) == (True, param)
            tried.append(other)
    assert len(tried) >= len(INDEX_TENSORS) - 4


def test_swapped_lengths_and_requests_say_what_was_given_and_what_to_pass() -> None:
    batch = batches()[0]
    args = valid_args("attend", batch)
    error = refused("attend", args, causal_lens=args["request_of_row"], request_of_row=args["causal_lens"])
    bound = "; ".join(
        f"nnz_{kind}={size}, bound by batch (zigzag, cp_rank 0 of 2)" for kind, size in (("local", 5), ("padded", 6))
    )
    assert str(error) == (
        "StageInputError DSA107: attend: causal_lens is RequestIds, not KeyCounts\n"
        f"  expected  i32[N] Contiguous, Local[L], KeyCounts; {bound}\n"
        "  got       i32[5] strides (1,) cpu\n"
        "  because   its brand: Local[Zigzag], RequestIds, zigzag, from test\n"
        "  where     cp_rank=0 of 2, zigzag\n"
        f"{contract_and_ran(STAGES['attend'])}\n"
        "  try       pass reorder_causal_lens.local_causal_lens; a tensor of your own is declared as KeyCounts where it"
        " enters the path, with dsa_contracts.declare"
    )


def test_a_tensor_that_was_declared_without_saying_what_it_counts_is_refused_and_one_that_says_it_passes() -> None:
    batch = batches()[0]
    args = valid_args("rope_quantize", batch)
    counted = batch.positions[batch.local_rows]
    error = refused("rope_quantize", args, positions=local(counted.clone(), Plain, batch))
    assert error.code == "DSA107"
    assert error.headline == "rope_quantize: positions is Plain, not Positions"
    assert dict(error.facts)["try"] == (
        "pass rebuild_positions.positions; a tensor of your own is declared as Positions where it enters the path, with"
        " dsa_contracts.declare"
    )
    call("rope_quantize", args, positions=local(counted.clone(), Positions, batch))


@contract(returns=("topk_indices",))
def latest_keys(causal_lens: CausalLens[Local[L], N], batch: CpBatch[L]) -> TopkIndices[L, N]:
    """The latest keys of each row, whatever their scores: typed as a choice of the indexer is, and none."""
    raise NotImplementedError


@stage(latest_keys, mode=Mode.DEVELOPMENT)
def take_latest(causal_lens: CausalLens[Local[L], N], batch: CpBatch[L]) -> TopkIndices[L, N]:
    return brand(causal_lens[:, None] - 1 - torch.arange(TOPK, dtype=torch.int32))


def test_what_another_stage_chose_is_refused_by_its_source_and_what_a_caller_vouches_for_is_not() -> None:
    batch = batches()[0]
    args = valid_args("attend", batch)
    call("attend", args, topk_indices=call("select_topk", valid_args("select_topk", batch)))
    latest = take_latest(args["causal_lens"], batch)
    error = refused("attend", args, topk_indices=latest)
    assert (error.code, error.headline) == (
        "DSA106",
        "attend: topk_indices comes from latest_keys.topk_indices, not from select_topk.topk_indices",
    )
    call("attend", args, topk_indices=local(latest, KeyIds, batch))


def test_which_rows_were_gathered_are_not_the_slots_of_gathered_rows() -> None:
    batch = one_rank()
    args = valid_args("write_kv", batch)
    call("write_kv", args)
    assert refused("write_kv", args, loc=batch.gathered_rows).headline == "write_kv: loc is RowIds, not TokenSlots"
    call("write_kv", args, loc=batch.rank_major_loc)
