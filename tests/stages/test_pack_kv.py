import torch

from dsa_contracts import brand_of
from dsa_contracts.core.marks import Plain, mark_text
from dsa_contracts.dsa.row_formats import bf16_format
from dsa_contracts.dsa.states import Raw, Rotated
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import pack_kv
from tests.support.branded import BF16, RANK, ROPE, batches, in_sequence, local, normal
from tests.support.messages import contract_and_ran
from tests.support.stage_calls import faulty, refusal, refused, valid_args


def test_rows_are_the_little_endian_bytes_of_latent_and_rope_part() -> None:
    (batch,) = batches(Zigzag(), 1, [2], [0])
    k_nope = local(torch.tensor([[1.0, -2.0], [0.0, 3.0]]).bfloat16(), Plain, batch)
    k_rope = local(torch.tensor([[0.5], [1.5]]).bfloat16(), Rotated, batch)
    kv = pack_kv(k_nope, k_rope, bf16_format(2, 1), batch)
    assert kv.tolist() == [[0x80, 0x3F, 0x00, 0xC0, 0x00, 0x3F], [0x00, 0x00, 0x40, 0x40, 0xC0, 0x3F]]


def test_parts_may_be_column_slices_and_nan_bits_are_kept() -> None:
    batch = batches()[1]
    bits = torch.arange(batch.nnz_local * 16).view(-1, 16).to(torch.int16) - 200
    latent = bits.view(torch.bfloat16)
    kv = pack_kv(local(latent[:, :RANK], Plain, batch), local(latent[:, RANK + 4 :], Rotated, batch), BF16, batch)
    assert torch.equal(kv.view(torch.int16), torch.cat([bits[:, :RANK], bits[:, RANK + 4 :]], dim=1))


def test_the_rope_state_is_passed_on() -> None:
    batch = batches()[0]
    args = valid_args("pack_kv", batch)
    for state in (Raw, Rotated):
        kv = pack_kv(**{**args, "k_rope": local(args["k_rope"].clone(), state, batch)})
        brand = brand_of(kv)
        assert brand is not None
        assert mark_text(brand.kind.state) == f"Packed[Bf16Row, {state.__name__}]"


def test_rows_of_all_ranks_are_packed_as_well() -> None:
    batch = batches()[0]
    k_nope, k_rope = in_sequence(normal(11, RANK), Plain, batch), in_sequence(normal(11, ROPE), Rotated, batch)
    assert pack_kv(k_nope, k_rope, BF16, batch).shape == (11, 24)


def test_a_format_of_another_width_is_refused() -> None:
    batch = batches()[0]
    error = refused("pack_kv", valid_args("pack_kv", batch), row_format=bf16_format(RANK, 2))
    assert str(error) == "\n".join(
        [
            "StageInputError DSA124: pack_kv: k_rope is 4 wide, k_rope of bf16 has 2 elements",
            (
                "  expected  widths_match_format: k_nope is as wide as k_nope of the row format, k_rope is as wide as"
                " k_rope of the row format"
            ),
            "  where     cp_rank=0 of 2, zigzag",
            contract_and_ran(pack_kv),
            "  try       pass heads and head dims as the batch has bound them for its model",
        ]
    )
    error = refused("pack_kv", valid_args("pack_kv", batch), row_format=bf16_format(16, ROPE))
    assert error.headline == "pack_kv: k_nope is 8 wide, k_nope of bf16 has 16 elements"


def test_latent_and_rope_part_of_other_rows_are_refused() -> None:
    batch = batches()[0]
    args = valid_args("pack_kv", batch)
    error = refused("pack_kv", args, k_rope=in_sequence(normal(5, ROPE), Rotated, batch))
    assert (error.code, error.headline) == ("DSA106", "pack_kv: k_rope holds Global[Sequence] rows, not Local[Zigzag]")


def test_rows_of_another_width_are_refused_as_a_result() -> None:
    batch = batches()[0]
    short = faulty("pack_kv", lambda args: torch.zeros(5, 20, dtype=torch.uint8))
    error = refusal(short, **valid_args("pack_kv", batch))
    assert (error.code, error.headline) == ("DSA110", "pack_kv: kv is 20 bytes wide, a row of bf16 has 24")
    faulty("pack_kv", lambda args: torch.zeros(5, 24, dtype=torch.uint8))(**valid_args("pack_kv", batch))
