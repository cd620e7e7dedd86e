"""Brands: what no shape can show, kept on a tensor object between two stages."""

from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import CpBatch, RopeStyle, brand_of, declare, declare_lasting, unchecked
from dsa_contracts.core.brands import brand
from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.core.views import set_brand
from dsa_contracts.dsa.row_formats import bf16_format
from dsa_contracts.dsa.states import (
    Bf16Row,
    Fp8Row,
    Global,
    Local,
    Packed,
    PackedRowStride,
    Pool,
    RankMajor,
    Raw,
    Rotated,
    Sequence,
)
from dsa_cp.comm import SimulatedGroup
from dsa_cp.layouts import Interleave, VllmZigzag, Zigzag
from dsa_cp.stages import all_gather_kv, apply_rope, pack_kv, restore_order, split_kv, write_kv
from tests.core.toys import args_of, batch_of, batches_of, checked_turn, global_rows, local, raw, refusal, rows_of

LOCAL: Any = Local
GLOBAL: Any = Global
RANK_MAJOR: Any = RankMajor
PACKED: Any = Packed


def described(tensor: Tensor) -> str | None:
    found = brand_of(tensor)
    return None if found is None else found.describe()


def test_a_result_carries_rows_state_layout_layer_and_producer() -> None:
    batch, function = batch_of(), checked_turn()
    turned = function(*args_of(batch))
    assert described(turned) == "Local[Zigzag], Rotated, zigzag, from turn.turned"
    later = function(*args_of(batch.at_layer(3)))
    assert described(later) == "Local[Zigzag], Rotated, zigzag, layer 3, from turn.turned"
    assert type(turned) is Tensor


def test_a_result_without_checks_carries_nothing() -> None:
    with unchecked():
        assert described(checked_turn()(*args_of(batch_of()))) is None


@pytest.mark.parametrize("change", [lambda x: x.clone(), lambda x: x * 1])
def test_operations_drop_the_brand_and_the_tensor_is_unknown_not_refused(change: Any) -> None:
    batch, function = batch_of(), checked_turn()
    changed = change(raw(rows_of(), batch))
    assert described(changed) is None
    function(*args_of(batch, x=changed))
    assert batch.log.unknown == {"turn": 1}


def test_what_only_known_inputs_say_is_not_claimed_of_a_result() -> None:
    batch = batch_of()
    unknown: Any = rows_of()
    packed = pack_kv(unknown, local(rows_of(), Rotated, batch), bf16_format(2, 2), batch)
    assert described(packed) == "Local[Zigzag], Packed[Bf16Row, Rotated], zigzag, from pack_kv.kv"
    assert batch.log.unknown == {"pack_kv": 1}
    nothing = pack_kv(unknown, unknown, bf16_format(2, 2), batch)
    assert described(nothing) == "unknown rows, unknown state, from pack_kv.kv"
    split_kv(nothing, bf16_format(2, 2), PackedRowStride, batch)
    assert batch.log.unknown == {"pack_kv": 3, "split_kv": 1}


def test_the_index_tensors_of_a_batch_are_branded() -> None:
    batch = batch_of(out_cache_loc=torch.arange(7))
    assert described(batch.positions) == "Global[Sequence], Positions, from batch.positions"
    assert described(batch.padded_rows) == "Local[Zigzag], RowIds, zigzag, from batch.padded_rows"
    assert batch.rank_major_loc is not None
    assert described(batch.rank_major_loc) == "Global[RankMajor[Zigzag]], TokenSlots, zigzag, from batch.rank_major_loc"


def headline(function: Any, *args: Any) -> str:
    return refusal(function, *args).splitlines()[0]


def test_a_second_rotation_of_the_right_shape_is_refused() -> None:
    batch = batch_of()
    table: Any = torch.zeros(7, 2)
    _, positions, _, _ = args_of(batch)
    once = apply_rope(raw(rows_of(), batch), positions, table, 2, RopeStyle.NEOX, batch)
    assert headline(apply_rope, once, positions, table, 2, RopeStyle.NEOX, batch) == (
        "StageInputError DSA107: apply_rope: x is Rotated, not Raw"
    )


def test_local_rows_for_global_rows_are_refused_even_where_one_rank_holds_all() -> None:
    batch = batches_of(cp_size=1)[0]
    assert (batch.nnz, batch.nnz_local, batch.nnz_gathered) == (7, 7, 7)
    kv = local(torch.zeros(7, 8, dtype=torch.uint8), PACKED[Bf16Row, Rotated], batch)
    assert headline(restore_order, kv, batch) == (
        "StageInputError DSA106: restore_order: gathered holds Local[Zigzag] rows, not Global[RankMajor[Zigzag]]"
    )
    gathered = global_rows(torch.zeros(7, 8, dtype=torch.uint8), RANK_MAJOR[Zigzag], PACKED[Bf16Row, Rotated], batch)
    assert described(restore_order(gathered, batch)) == (
        "Global[Sequence], Packed[Bf16Row, Rotated], from restore_order.restored"
    )


def test_a_second_gather_is_refused_even_where_one_rank_holds_all() -> None:
    batch = batches_of(cp_size=1)[0]
    kv = local(torch.zeros(7, 8, dtype=torch.uint8), PACKED[Bf16Row, Rotated], batch)
    gathered: Any = all_gather_kv(kv, bf16_format(2, 2), batch, SimulatedGroup(1).comm(0))
    text = refusal(all_gather_kv, gathered, bf16_format(2, 2), batch, SimulatedGroup(1).comm(0))
    assert "DSA106: all_gather_kv: kv holds Global[RankMajor[Zigzag]] rows, not Local[Zigzag]" in text


def test_rank_major_rows_with_slots_in_sequence_order_are_refused() -> None:
    batch = batches_of(None, 2, 8, out_cache_loc=torch.arange(8), page_size=8)[0]
    assert batch.nnz == batch.nnz_gathered == 8
    state = PACKED[Bf16Row, Rotated]
    pool = declare_lasting(torch.zeros(1, 8, 8, dtype=torch.uint8), Pool, state, "pool")  # type: ignore[var-annotated]
    kv = global_rows(torch.ones(8, 8, dtype=torch.uint8), RANK_MAJOR[Zigzag], state, batch)
    assert headline(write_kv, pool, kv, batch.out_cache_loc, bf16_format(2, 2), batch) == (
        "StageInputError DSA106: write_kv: loc holds Global[Sequence] rows, not Global[RankMajor[Zigzag]]"
    )
    write_kv(pool, kv, batch.rank_major_loc, bf16_format(2, 2), batch)  # type: ignore[arg-type]
    assert int(pool.sum()) == 64


def belong_to(batch: CpBatch[Any], x: Any) -> None:
    """Say of a tensor that it was made for another batch."""
    brand = brand_of(x)
    assert brand is not None
    set_brand(x, brand._replace(scope_token=batch.token))


def test_a_tensor_of_another_block_size_is_refused() -> None:
    one, block = (batches_of(Interleave(size), 2, 128)[0] for size in (1, 64))
    x = raw(rows_of(64), one)
    belong_to(block, x)
    assert headline(checked_turn(), *args_of(block, x=x)) == (
        "StageInputError DSA106: turn: x is laid out as interleave, the batch as interleave(block=64)"
    )
    checked_turn()(*args_of(block, x=raw(rows_of(64), block)))


def test_a_tensor_of_another_layout_is_refused() -> None:
    zigzag, vllm = batches_of(Zigzag(), 2, 8)[0], batches_of(VllmZigzag(), 2, 8)[0]
    x = raw(rows_of(4), zigzag)
    belong_to(vllm, x)
    assert headline(checked_turn(), *args_of(vllm, x=x)) == (
        "StageInputError DSA106: turn: x is laid out as zigzag, the batch as vllm_zigzag"
    )


def test_a_tensor_of_another_batch_or_layer_is_refused_and_one_for_all_layers_is_not() -> None:
    batch, function = batch_of(), checked_turn()
    stale = args_of(batch_of())[0]
    assert headline(function, *args_of(batch, x=stale)) == "StageInputError DSA108: turn: x was made for another batch"
    first = args_of(batch.at_layer(1))[0]
    assert headline(function, *args_of(batch.at_layer(2), x=first)) == (
        "StageInputError DSA108: turn: x was made for layer 1, this is layer 2"
    )
    for_all = args_of(batch)[0]
    function(*args_of(batch.at_layer(2), x=for_all))
    function(*args_of(batch, x=first))


def test_a_pool_outlives_batches_and_belongs_to_one_layer() -> None:
    state, row_format = PACKED[Bf16Row, Rotated], bf16_format(2, 2)
    rows = torch.zeros(1, 64, 8, dtype=torch.uint8)
    pool = declare_lasting(rows, Pool, state, "pool of layer 1", 1)  # type: ignore[var-annotated]
    for _ in range(2):
        batch = batch_of(out_cache_loc=torch.arange(7))
        kv = global_rows(torch.ones(7, 8, dtype=torch.uint8), Sequence, state, batch)
        write_kv(pool, kv, batch.out_cache_loc, row_format, batch.at_layer(1))  # type: ignore[arg-type]
        assert headline(write_kv, pool, kv, batch.out_cache_loc, row_format, batch.at_layer(2)) == (
            "StageInputError DSA108: write_kv: pool was made for layer 1, this is layer 2"
        )


def test_a_pool_of_another_format_is_refused() -> None:
    batch = batch_of(out_cache_loc=torch.arange(7))
    rows = torch.zeros(1, 64, 8, dtype=torch.uint8)
    pool = declare_lasting(rows, Pool, PACKED[Fp8Row, Rotated], "pool")  # type: ignore[var-annotated]
    kv = global_rows(torch.ones(7, 8, dtype=torch.uint8), Sequence, PACKED[Bf16Row, Rotated], batch)
    assert headline(write_kv, pool, kv, batch.out_cache_loc, bf16_format(2, 2), batch) == (
        "StageInputError DSA107: write_kv: pool is Packed[Fp8Row, Rotated], not Packed[Bf16Row, Rotated]"
    )


def test_declaring_and_branding_give_back_the_same_object() -> None:
    tensor, batch = rows_of(), batch_of()
    same: list[Any] = [brand(tensor)]
    assert described(tensor) is None
    same.append(declare(tensor, Local[Zigzag], Raw, batch, "me"))
    assert [id(one) for one in same] == [id(tensor)] * 2
    assert described(tensor) == "Local[Zigzag], Raw, zigzag, from me"


def test_columns_of_split_rows_are_views_with_brands_of_their_own() -> None:
    batch = batch_of()
    kv = local(torch.zeros(3, 8, dtype=torch.uint8), PACKED[Bf16Row, Raw], batch)
    k_nope, k_rope = split_kv(kv, bf16_format(2, 2), PackedRowStride, batch)
    assert described(k_nope) == "Local[Zigzag], Plain, zigzag, from split_kv.k_nope"
    assert described(k_rope) == "Local[Zigzag], Raw, zigzag, from split_kv.k_rope"
    assert k_nope.data_ptr() == kv.data_ptr()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_is_declared_as_nothing() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(2)])
    with pytest.raises(ArgumentError, match="DSA602: test: a nested tensor has no rows"):
        raw(nested, batch_of())
    with pytest.raises(ArgumentError, match="DSA602: pool: a nested tensor has no rows"):
        declare_lasting(nested, Pool, Rotated, "pool")
    assert brand_of(nested) is None
