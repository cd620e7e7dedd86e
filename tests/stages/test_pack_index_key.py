import math
import struct

import pytest
import torch

from dsa_contracts import checking_values
from dsa_contracts.dsa.row_formats import index_bf16_format, index_fp8_format
from dsa_contracts.dsa.states import Raw, Rotated
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import pack_index_key
from tests.support.branded import INDEX_DIM, batches, in_sequence, local, normal
from tests.support.e4m3 import encode, float32
from tests.support.messages import contract_and_ran
from tests.support.stage_calls import faulty, refusal, refused, valid_args

FP8_INDEX = index_fp8_format(INDEX_DIM)


def test_bf16_rows_are_the_bytes_of_the_key() -> None:
    (batch,) = batches(Zigzag(), 1, [1], [0])
    key = local(torch.tensor([[1.0, -2.0]]).bfloat16(), Rotated, batch)
    row = pack_index_key(key, index_bf16_format(2), batch)
    assert row.tolist() == [[0x80, 0x3F, 0x00, 0xC0]]
    assert row.data_ptr() != key.data_ptr()


def test_a_row_of_the_model_has_132_bytes_with_the_scale_behind_the_codes() -> None:
    (batch,) = batches(Zigzag(), 1, [3], [0])
    key = normal(3, 128)
    rows = pack_index_key(local(key, Rotated, batch), index_fp8_format(), batch)
    assert rows.shape == (3, 132)
    for values, row in zip(key.tolist(), rows.tolist(), strict=True):
        (scale,) = struct.unpack("<f", bytes(row[128:]))
        assert scale == float32(max(abs(value) for value in values) / 448.0)
        assert row[:128] == [encode(float32(value / scale)) for value in values]


def test_codes_by_hand() -> None:
    (batch,) = batches(Zigzag(), 1, [2], [0])
    key = local(torch.tensor([[896.0, -448.0, 2.0, 0.0], [0.0, 0.0, 0.0, 0.0]]).bfloat16(), Rotated, batch)
    rows = pack_index_key(key, index_fp8_format(4), batch).tolist()
    assert rows[0] == [126, 246, 56, 0, *struct.pack("<f", 2.0)]
    assert rows[1] == [0, 0, 0, 0, *struct.pack("<f", 2.0**-126)]


@pytest.mark.parametrize("row_format", [FP8_INDEX, index_bf16_format(INDEX_DIM)], ids=lambda f: f.name)
def test_strided_keys_and_keys_of_all_ranks_give_the_bytes_of_dense_ones(row_format: object) -> None:
    batch = batches()[0]
    wide = normal(batch.nnz, 3 * INDEX_DIM)
    args = {**valid_args("pack_index_key", batch), "row_format": row_format}
    strided = in_sequence(wide[:, INDEX_DIM : 2 * INDEX_DIM], Rotated, batch)
    dense = in_sequence(strided.contiguous(), Rotated, batch)
    assert torch.equal(pack_index_key(**{**args, "k_index": strided}), pack_index_key(**{**args, "k_index": dense}))


def test_a_raw_key_is_refused() -> None:
    batch = batches()[0]
    args = valid_args("pack_index_key", batch)
    error = refused("pack_index_key", args, k_index=local(args["k_index"].clone(), Raw, batch))
    assert (error.code, error.headline) == ("DSA107", "pack_index_key: k_index is Raw, not Rotated")


def test_a_format_of_another_width_is_refused() -> None:
    batch = batches()[0]
    error = refused("pack_index_key", valid_args("pack_index_key", batch), row_format=index_bf16_format(128))
    assert str(error) == "\n".join(
        [
            "StageInputError DSA124: pack_index_key: k_index is 8 wide, k_index of index_bf16 has 128 elements",
            "  expected  widths_match_format: k_index is as wide as k_index of the row format",
            "  where     cp_rank=0 of 2, zigzag",
            contract_and_ran(pack_index_key),
            "  try       pass heads and head dims as the batch has bound them for its model",
        ]
    )


def test_a_key_that_is_not_finite_is_refused_by_its_scale_where_values_are_read() -> None:
    batch = batches()[0]
    args = {**valid_args("pack_index_key", batch), "row_format": FP8_INDEX}
    key = args["k_index"].clone()
    key[1, 0] = math.inf
    with checking_values():
        pack_index_key(**args)
        error = refused("pack_index_key", args, k_index=local(key, Rotated, batch))
    assert (error.code, error.headline) == ("DSA112", "pack_index_key: row 1 of index_kv has a scale that is not positive")


def test_an_implementation_that_drops_the_scale_is_refused() -> None:
    args = {**valid_args("pack_index_key", batches()[0]), "row_format": FP8_INDEX}
    error = refusal(faulty("pack_index_key", lambda given: torch.zeros(5, 8, dtype=torch.uint8)), **args)
    assert (error.code, error.headline) == ("DSA110", "pack_index_key: index_kv is 8 bytes wide, a row of index_fp8 has 12")


def test_an_implementation_that_leaves_scales_at_0_is_refused_where_values_are_read() -> None:
    args = {**valid_args("pack_index_key", batches()[0]), "row_format": FP8_INDEX}
    zeros = faulty("pack_index_key", lambda given: torch.zeros(5, 12, dtype=torch.uint8))
    zeros(**args)
    with checking_values():
        assert refusal(zeros, **args).code == "DSA112"
