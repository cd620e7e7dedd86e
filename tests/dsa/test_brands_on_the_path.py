"""Brands of the path's stages: RoPE once, rows gathered and restored once, pools of one format and layer."""

from typing import Any

import torch
from torch import Tensor

from dsa_contracts import RopeStyle, brand_of, declare_lasting
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
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import all_gather_kv, apply_rope, pack_kv, restore_order, split_kv, write_kv
from tests.support.messages import refusal
from tests.support.small_stages import args_of, batch_of, batches_of, global_rows, local, raw, rows_of

LOCAL: Any = Local
GLOBAL: Any = Global
RANK_MAJOR: Any = RankMajor
PACKED: Any = Packed


def described(tensor: Tensor) -> str | None:
    found = brand_of(tensor)
    return None if found is None else found.describe()


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


def test_columns_of_split_rows_are_views_with_brands_of_their_own() -> None:
    batch = batch_of()
    kv = local(torch.zeros(3, 8, dtype=torch.uint8), PACKED[Bf16Row, Raw], batch)
    k_nope, k_rope = split_kv(kv, bf16_format(2, 2), PackedRowStride, batch)
    assert described(k_nope) == "Local[Zigzag], Plain, zigzag, from split_kv.k_nope"
    assert described(k_rope) == "Local[Zigzag], Raw, zigzag, from split_kv.k_rope"
    assert k_nope.data_ptr() == kv.data_ptr()
