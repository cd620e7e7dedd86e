"""Contracts around functions of an engine that stay where they are: right calls pass, public faults are refused by name."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import dsa_contracts.stages as contracts
from dsa_contracts import ContractError, CpBatch, Mode, declare
from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.core.marks import Plain
from dsa_contracts.core.runtime.observe import observe
from dsa_contracts.core.scope import forward
from dsa_contracts.dsa.engine_shapes import KvParts, paged, without_heads
from dsa_contracts.dsa.row_formats import fp8_656_format
from dsa_contracts.dsa.states import Global, KeyCounts, Local, Packed, Positions, Raw, Rotated, Sequence
from dsa_contracts.dsa.typevars import L
from tests.support.engine_calls import FORMAT, LATENT, PAGE, ROPE, Engine, batches, cache, rows

OWN: Any = Local[L]  # type: ignore[valid-type]
IN_SEQUENCE: Any = Global[Sequence]
MODES = pytest.mark.parametrize("mode", [Mode.DEVELOPMENT, Mode.VALUES])


@MODES
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("lens", [(7,), (8,), (1,)])
def test_right_calls_pass_and_every_row_is_known(mode: Mode, rank: int, lens: tuple[int, ...]) -> None:
    engine, batch = Engine(mode), batches(*lens)[rank]
    for layer in range(3):
        engine.layer(batch, layer)
    watched = (engine.positions, engine.quantise, engine.gather, engine.write, engine.lens, engine.attend)
    assert [watch.calls for watch in watched] == [3] * 6
    assert [dict(watch.faults) for watch in watched] == [{}] * 6
    assert dict(batch.log.unknown) == {}


def gathered_early(batch: CpBatch[Any]) -> Callable[[Any], Any]:
    """K of all ranks, while positions are this rank's: the crash of sgl-project/sglang#29161."""
    return lambda halves: tuple(
        declare(rows(batch.nnz, 1, part.shape[-1]), IN_SEQUENCE, Raw, batch, "gather") for part in halves
    )


def another(**options: Any) -> CpBatch[Any]:
    return batches(**options)[0].at_layer(0)


Fault = tuple[str, Callable[[CpBatch[Any]], Callable[[Any], Any]], str]
IN_DEVELOPMENT: dict[str, Fault] = {
    "K is gathered before the fused rotation (sglang#29161)": (
        "k",
        gathered_early,
        "DSA102: rope_quantize: k_nope has 7 rows, which is neither nnz_local 3 nor nnz_padded 4",
    ),
    "rank-major rows go with slots in sequence order (sglang#29161)": (
        "loc",
        lambda batch: lambda loc: declare(loc.clone(), IN_SEQUENCE, Plain, batch, "engine"),
        "DSA106: write_kv: loc holds Global[Sequence] rows, not Global[RankMajor[Zigzag]]",
    ),
    "lengths are those of the batch, cut to this rank's number (sglang#29161)": (
        "lens",
        lambda batch: lambda _: declare(batch.causal_lens[:3].clone(), IN_SEQUENCE, KeyCounts, batch, "engine"),
        "DSA106: attend: causal_lens holds Global[Sequence] rows, not Local[Zigzag]",
    ),
    "K is rotated before the backend rotates it": (
        "k",
        lambda batch: lambda halves: (halves[0], declare(halves[1].clone(), OWN, Rotated, batch, "rope")),
        "DSA107: rope_quantize: k_rope is Rotated, not Raw",
    ),
    "the queries are of another layer": (
        "q",
        lambda batch: lambda q: declare(q.clone(), OWN, Rotated, batch.at_layer(1), "layer 1"),
        "DSA108: attend: q was made for layer 1, this is layer 0",
    ),
    "positions are those of the batch before": (
        "positions",
        lambda batch: lambda p: declare(p.clone(), OWN, Positions, another(), "stale"),
        "DSA108: rope_quantize: positions was made for another batch",
    ),
    "the rotation's table is shorter than the longest request": (
        "table",
        lambda batch: lambda table: table[:6],
        "DSA111: rope_quantize: cos_sin_cache has 6 rows, positions of this batch go up to 6",
    ),
    "slots are int32": (
        "loc",
        lambda batch: lambda loc: loc.int(),
        "DSA103: write_kv: loc is i32, not i64",
    ),
    "halves are swapped": (
        "halves",
        lambda batch: lambda halves: (halves[1], halves[0]),
        "DSA107: all_gather_kv: kv is Rotated, not Plain",
    ),
    "one half is gathered and the other is not": (
        "gathered",
        lambda batch: lambda halves: (halves[0], halves[1][:3]),
        "DSA102: write_kv: kv has parts of 8 and 3 rows",
    ),
    "the cache is one of another layer": (
        "buffer",
        lambda batch: lambda _: cache(1),
        "DSA108: write_kv: pool was made for layer 1, this is layer 0",
    ),
    "the cache is wider than its format": (
        "buffer",
        lambda batch: lambda _: cache(0, LATENT + ROPE + 4),
        "DSA102: write_kv: kv has 12 bytes a row, not 16",
    ),
}


@MODES
@pytest.mark.parametrize("name", IN_DEVELOPMENT)
def test_a_fault_is_refused_by_name_in_both_modes(name: str, mode: Mode) -> None:
    step, fault, message = IN_DEVELOPMENT[name]
    batch = batches()[0]
    right = Engine(mode)
    right.layer(batch)
    with pytest.raises(ContractError) as error:
        right.layer(batch, 0, **{step: fault(batch.at_layer(0))})
    assert str(error.value).splitlines()[0].partition(" ")[2] == message


IN_VALUES: dict[str, Fault] = {
    "positions are counted on each rank": (
        "positions",
        lambda batch: lambda p: declare(torch.arange(3), OWN, Positions, batch, "engine"),
        "DSA115: rope_quantize: positions[2] is 2, row 2 of k_rope is at position 6",
    ),
    "lengths are in the order of another rank": (
        "lens",
        lambda batch: lambda lens: declare(lens.flip(0), OWN, KeyCounts, batch, "engine"),
        "DSA117: attend: causal_lens[0] is 7, for row 0 it is 1",
    ),
    "two slots are exchanged": (
        "loc",
        lambda batch: lambda loc: loc[[1, 0, *range(2, 8)]],
        "DSA116",
    ),
    "padding has a slot": (
        "loc",
        lambda batch: lambda loc: torch.where(loc < 0, 15, loc),
        "DSA116: write_kv: 8 slots are written, the batch has 7 new tokens",
    ),
}


@pytest.mark.parametrize("name", IN_VALUES)
def test_a_fault_that_only_values_show_is_refused_in_values_mode(name: str) -> None:
    step, fault, message = IN_VALUES[name]
    batch = batches()[0]
    with pytest.raises(ContractError) as error:
        Engine(Mode.VALUES).layer(batch, 0, **{step: fault(batch.at_layer(0))})
    assert str(error.value).splitlines()[0].partition(" ")[2].startswith(message)


def test_k_in_three_dims_that_is_a_view_of_a_buffer_keeps_its_brand() -> None:
    batch = batches()[0].at_layer(0)
    watch = observe(contracts.pack_kv, adapt={"k_nope": without_heads, "k_rope": without_heads})
    for _ in range(2):
        buffer = rows(3, 1, LATENT + ROPE)
        declare(buffer[..., :LATENT], OWN, Plain, batch, "engine")
        declare(buffer[..., LATENT:], OWN, Rotated, batch, "engine")
        watch.after(watch.before(k_nope=buffer[..., :LATENT], k_rope=buffer[..., LATENT:], batch=batch))
    assert dict(batch.log.unknown) == {}


def test_a_decode_after_a_prefill_belongs_to_no_batch() -> None:
    watch, batch = observe(contracts.write_kv, adapt={"pool": paged(PAGE)}), batches()[0]
    pool, halves = cache(0), KvParts(rows(2, LATENT).to(torch.float8_e4m3fn), rows(2, ROPE).to(torch.float8_e4m3fn))
    with forward(batch):
        with pytest.raises(ContractError, match="DSA102"):
            watch.before(pool=pool, kv=halves, loc=torch.tensor([9, 10]), row_format=FORMAT)
        with forward(None):
            assert watch.before(pool=pool, kv=halves, loc=torch.tensor([9, 10]), row_format=FORMAT) is None


def test_parts_of_several_formats_are_compared_part_by_part() -> None:
    fmt = fp8_656_format(512, 64)
    parts = {
        "k_nope": torch.zeros(2, 512, dtype=torch.float8_e4m3fn),
        "scales": torch.ones(2, 4),
        "k_rope": torch.zeros(2, 64, dtype=torch.bfloat16),
    }
    whole = KvParts(**parts)
    assert (whole.row_bytes, whole.misfit(fmt), whole.packed().shape) == (656, "", (2, 656))
    assert KvParts(parts["k_nope"], parts["k_rope"].float()).misfit(fmt) == "k_rope of 256 bytes, of fp8_656 it has 128"
    assert KvParts(k_index=parts["k_rope"]).misfit(fmt) == "k_index, which rows of fp8_656 do not have"
    packed: Any = Packed
    assert whole.states(packed[int, Rotated]) == (Plain, Plain, Rotated)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (KvParts, "KvParts without a part; give k_nope and k_rope, or k_index and scales"),
        (lambda: KvParts(torch.ones(3)), "k_nope is 1 dims; a part is a tensor [rows, width] or [rows, 1, width]"),
        (lambda: paged(0), "page_size is 0; it must be at least 1"),
    ],
)
def test_wrong_shapes_of_an_engine_are_named(make: Any, message: str) -> None:
    with pytest.raises(ArgumentError) as error:
        make()
    assert error.value.headline == message


def test_a_cache_of_slots_is_seen_as_pages_without_a_copy() -> None:
    buffer = cache(3)
    pages = paged(PAGE)(buffer)
    assert pages.shape == (4, PAGE, LATENT + ROPE)
    assert pages.data_ptr() == buffer.data_ptr()
    assert without_heads(rows(3, 4)).shape == (3, 4)
    assert paged(PAGE)(rows(3, 2, 4)).shape == (3, 2, 4)
