"""Batches recorded from sglang 0.5.23 and vLLM 0.33: the contracts look at every value of them and have no complaint.

Where the batch is, the engine's own function stands in the place of the implementation: it returns what was recorded. A fault
put into a recording is found, so that the silence means something.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, GivenLayout, checking_values, declare, declare_lasting, stage
from dsa_contracts.core.errors import ContractError
from dsa_contracts.core.runtime.observe import observe
from dsa_contracts.core.scope import forward
from dsa_contracts.dsa.row_formats import bf16_format
from dsa_contracts.dsa.states import (
    Bf16Row,
    EngineOrder,
    Global,
    Local,
    Packed,
    Pool,
    RankMajor,
    Rotated,
    Sequence,
    TokenSlots,
)
from dsa_cp.comm import run_ranks
from tests.support.recorded_batches import SGLANG, VLLM, Case, bf16, sglang_batch, vllm_batch

WIDTH = SGLANG["about"]["latent"] + SGLANG["about"]["rope"]
FORMAT = bf16_format(SGLANG["about"]["latent"], SGLANG["about"]["rope"])
ROWS: Any = Packed[Bf16Row, Rotated]
LOCAL: Any = Local[GivenLayout]
GATHERED: Any = Global[RankMajor[GivenLayout]]

sglang_cases = pytest.mark.parametrize(
    "case", SGLANG["cases"], ids=lambda case: f"{case['strategy']}-{case['cp_size']}-{case['extend_lens']}"
)
vllm_cases = pytest.mark.parametrize("case", VLLM["cases"], ids=lambda case: case["name"])


def returning(contract: Any, result: Any) -> Any:
    """The engine's function in a stage's place: it does nothing here and returns what it returned there."""
    names = {"rebuild_positions": 3, "all_gather_kv": 4, "restore_order": 2, "write_kv": 5}
    bodies: dict[int, Any] = {
        2: lambda gathered, batch: result,
        3: lambda positions, rows, batch: result,
        4: lambda kv, row_format, batch, comm: result,
        5: lambda pool, kv, loc, row_format, batch: result(pool),
    }
    return stage(contract)(bodies[names[contract.__name__]])


def packed(rows: Any) -> Tensor:
    """Recorded rows as packed bytes."""
    return bf16(rows).reshape(-1, WIDTH).view(torch.uint8)


def pool_of(pages: int, page_size: int) -> Tensor:
    return declare_lasting(torch.zeros(pages, page_size, 2 * WIDTH, dtype=torch.uint8), Pool, ROWS, "engine.pool")


def holding(pool: dict[str, list[int]], pages: int, page_size: int) -> Tensor:
    """A recorded pool as bytes."""
    slots = torch.zeros(pages * page_size, WIDTH, dtype=torch.bfloat16)
    for slot, row in pool.items():
        slots[int(slot)] = bf16(row)
    return slots.view(torch.uint8).view(pages, page_size, -1)


def packed_from_3d(rank: Case) -> tuple[Tensor, Tensor]:
    """K as the engine has it, [n, 1, latent] and [n, 1, rope] views of one buffer, and the buffer's rows as packed bytes."""
    facts = (rank["k"], rank["k_rope"])
    assert facts[1]["offset"] == facts[0]["offset"] + facts[0]["shape"][-1], "both are views of one gathered buffer"
    buffer = torch.cat([bf16(one["values"]) for one in facts], dim=-1).contiguous()
    k = buffer[..., : facts[0]["shape"][-1]]
    assert list(k.shape) == facts[0]["shape"]
    assert k.stride(0) == facts[0]["strides"][0]
    return k, buffer.squeeze(1).view(torch.uint8)


def whole_path(case: Case, rank: int, comm: Any, fault: str = "") -> CpBatch[GivenLayout]:
    """Call the stages of one rank of sglang with what was recorded; `fault` breaks one of the recordings."""
    batch, own = sglang_batch(case, rank), case["ranks"][rank]
    positions = torch.tensor(own["positions"])
    if fault == "positions":
        positions[0] += 1
    got = returning(contracts.rebuild_positions, positions)(batch.positions, batch.shard_rows, batch)
    assert got is positions

    table = torch.zeros(batch.nnz, WIDTH, dtype=torch.bfloat16)
    for one in case["ranks"]:
        rows = torch.tensor(one["shard_rows"])[: len(one["collective_input"])]
        table[rows[rows >= 0]] = bf16(one["collective_input"])[: len(rows)][rows >= 0]
    shard = torch.where(batch.shard_rows[:, None] >= 0, table[batch.shard_rows.clamp(min=0)], 0)
    kv: Any = declare(shard.view(torch.uint8), LOCAL, ROWS, batch, "engine.shard")
    sent = [one["collective_input"] for one in case["ranks"]]
    rank_major = packed([sent[-1], *sent[:-1]] if fault == "rank order" else sent)
    gathered = returning(contracts.all_gather_kv, rank_major)(kv, FORMAT, batch, comm)

    _, in_sequence = packed_from_3d(own)
    restored = returning(contracts.restore_order, in_sequence)(gathered, batch)
    pages, size = SGLANG["about"]["pages"], SGLANG["about"]["page_size"]
    pool = pool_of(pages, size)
    loc = batch.out_cache_loc
    if fault == "slots":
        loc = declare(batch.out_cache_loc.roll(1), Global[Sequence], TokenSlots, batch, "engine.loc")  # type: ignore[union-attr]

    def write(into: Tensor) -> None:
        into.copy_(holding(own["pool_after_prefill"], pages, size))

    returning(contracts.write_kv, write)(pool, restored, loc, FORMAT, batch)
    return batch


@sglang_cases
def test_a_prefill_of_sglang_with_physical_padding_and_three_dim_k_raises_no_alarm(case: Case) -> None:
    with checking_values():
        batches = run_ranks(case["cp_size"], lambda comm: whole_path(case, comm.rank, comm))
    assert all(batch.log.calls["write_kv"] == 1 for batch in batches)
    assert all(not batch.log.unknown for batch in batches)
    if case["strategy"] == "zigzag":
        assert any(batch.nnz_shard != batch.nnz_padded for batch in batches)


@pytest.mark.parametrize(
    ("fault", "code"),
    [("positions", "DSA115"), ("rank order", "DSA122"), ("slots", "DSA116")],
)
def test_a_fault_in_what_sglang_did_is_found(fault: str, code: str) -> None:
    case = SGLANG["cases"][1]
    with checking_values(), pytest.raises(ContractError) as error:
        run_ranks(case["cp_size"], lambda comm: whole_path(case, comm.rank, comm, fault))
    assert code in str(error.value)


def test_zigzag_of_sglang_has_four_rows_in_the_shard_and_two_in_the_collective() -> None:
    batch = sglang_batch(SGLANG["cases"][0], 1)
    assert (batch.nnz, batch.nnz_local, batch.nnz_padded, batch.nnz_shard, batch.nnz_gathered) == (4, 2, 2, 4, 4)
    assert batch.shard_rows.tolist() == [1, 2, -1, -1]
    assert batch.padded_rows.tolist() == [1, 2]


@sglang_cases
def test_a_decode_behind_a_prefill_of_sglang_is_a_batch_of_its_own(case: Case) -> None:
    """One new token a request, every rank with all of them: one rank's batch, with the slots of this step."""
    lens = case["extend_lens"]
    seen = [old + new for old, new in zip(case["prefix_lens"], lens, strict=True)]
    layout = GivenLayout.from_lists("sglang decode", [[(request, 0, 1) for request in range(len(lens))]])
    pages, size = SGLANG["about"]["pages"], SGLANG["about"]["page_size"]
    for own in case["ranks"]:
        batch = CpBatch.from_engine(
            layout,
            1,
            0,
            [1] * len(lens),
            seen,
            out_cache_loc=torch.tensor(case["decode_loc"]),
            skip=0,
            page_size=size,
        )
        after, before = own["pool_after_decode"], own["pool_after_prefill"]
        rows = packed([after[str(slot)] for slot in case["decode_loc"]])
        kv: Any = declare(rows, Global[Sequence], ROWS, batch, "engine.decode")
        pool = pool_of(pages, size)
        pool.copy_(holding(before, pages, size))

        def write(into: Tensor, after: Any = after) -> None:
            into.copy_(holding(after, pages, size))

        with checking_values():
            returning(contracts.write_kv, write)(pool, kv, batch.out_cache_loc, FORMAT, batch)


def test_the_writer_of_sglang_takes_minus_one_as_an_address_and_so_a_batch_of_its_skip_value_refuses_it() -> None:
    seen = SGLANG["skip"]
    assert (seen["loc"], seen["slots_of_pool"], seen["written"]) == ([-1, 0, 70], 192, [70, 191])
    layout = GivenLayout.from_lists("sglang decode", [[(0, 0, 3)]])
    for skip, complaint in ((-1, ""), (0, "loc[0] is -1, the writer skips slot 0 and takes it as an address")):
        batch = CpBatch.from_engine(
            layout,
            1,
            0,
            [3],
            out_cache_loc=torch.tensor(seen["loc"]),
            skip=skip,
            owned=torch.tensor([False, skip < 0, True]),
        )
        kv: Any = declare(packed([[1] * WIDTH] * 3), Global[Sequence], ROWS, batch, "engine.decode")
        pool = pool_of(3, 64)

        def write(into: Tensor) -> None:
            for at in [0, 70] if skip < 0 else [70]:  # noqa: B023
                into.view(-1, 2 * WIDTH)[at] = packed([[1] * WIDTH])[0]

        with checking_values():
            call = (pool, kv, batch.out_cache_loc, FORMAT, batch)
            if not complaint:
                returning(contracts.write_kv, write)(*call)
                continue
            with pytest.raises(ContractError) as error:
                returning(contracts.write_kv, write)(*call)
        assert str(error.value).splitlines()[0] == f"StageInputError DSA116: write_kv: {complaint}"


def vllm_path(case: Case, rank: int, comm: Any, fault: str = "") -> CpBatch[GivenLayout]:
    """Call the stages of one rank of vLLM with what was recorded."""
    batch, own = vllm_batch(case, rank), case["ranks"][rank]
    positions = torch.tensor(own["positions"])
    if fault == "positions":
        positions[0] += 1
    returning(contracts.rebuild_positions, positions)(batch.positions, batch.shard_rows, batch)

    kv: Any = declare(packed(own["shard"]), LOCAL, ROWS, batch, "engine.shard")
    rows = torch.cat((bf16(own["cache_latent"]), bf16(own["cache_rope"]).squeeze(1)), dim=1).view(torch.uint8)
    if case["dcp_size"] == 1:
        gathered = returning(contracts.all_gather_kv, rows)(kv, FORMAT, batch, comm)
        assert batch.gathered_rows.clamp(min=0).tolist() == own["padded_gather_idx"]
        assert batch.restore_index.tolist() == own["hidden_restore_idx"]
        loc: Any = batch.rank_major_loc
    else:
        gathered = declare(rows, Global[EngineOrder], ROWS, batch, "engine.gather")
        loc = batch.engine_loc
    assert loc.tolist() == own["cache_slots"]
    if fault == "slots":
        loc = declare(loc.flip(0), Global[EngineOrder] if case["dcp_size"] > 1 else GATHERED, TokenSlots, batch, "loc")
    size = VLLM["about"]["page_size"]
    pages = max(max(one["slot_mapping"]) for one in case["ranks"]) // size + 1
    pool = pool_of(max(pages, 1), size)

    def write(into: Tensor) -> None:
        at = torch.tensor(own["cache_slots"])
        into.view(-1, 2 * WIDTH)[at[at >= 0]] = rows[at >= 0]

    returning(contracts.write_kv, write)(pool, gathered, loc, FORMAT, batch)
    return batch


@vllm_cases
def test_a_batch_of_vllm_raises_no_alarm(case: Case) -> None:
    with checking_values():
        batches = run_ranks(case["cp_size"], lambda comm: vllm_path(case, comm.rank, comm))
    assert all(batch.log.calls["write_kv"] == 1 for batch in batches)
    assert all(not batch.log.unknown for batch in batches)


@pytest.mark.parametrize("name", ["full chunks", "decodes sharded", "graph padding", "decodes replicated", "sharded cache"])
@pytest.mark.parametrize(("fault", "code"), [("positions", "DSA115"), ("slots", "DSA116")])
def test_a_fault_in_what_vllm_did_is_found(name: str, fault: str, code: str) -> None:
    case = next(case for case in VLLM["cases"] if case["name"] == name)
    with checking_values(), pytest.raises(ContractError) as error:
        run_ranks(case["cp_size"], lambda comm: vllm_path(case, comm.rank, comm, fault))
    assert code in str(error.value)


def test_batches_of_one_engine_layout_share_the_calls_that_passed() -> None:
    first, second = (sglang_batch(SGLANG["cases"][0], 0) for _ in range(2))
    assert first.layout is not second.layout
    assert first.layout == second.layout
    assert first.signature is second.signature


@sglang_cases
def test_an_observer_of_sglangs_pool_write_takes_three_dim_k_and_a_decode_outside_of_the_forward(case: Case) -> None:
    """`set_mla_kv_buffer` carries no batch: the prefill's write is in its forward, the decode's belongs to none."""
    watch = observe(contracts.write_kv, adapt={"kv": lambda k: k.squeeze(1)})
    pages, size = SGLANG["about"]["pages"], SGLANG["about"]["page_size"]
    with checking_values():
        for rank, own in enumerate(case["ranks"]):
            batch, pool = sglang_batch(case, rank), pool_of(pages, size)
            _, rows = packed_from_3d(own)
            k: Any = declare(rows, Global[Sequence], ROWS, batch, "engine.gather").unsqueeze(1)
            with forward(batch):
                seen = watch.before(pool=pool, kv=k, loc=batch.out_cache_loc, row_format=FORMAT)
                pool.copy_(holding(own["pool_after_prefill"], pages, size))
                watch.after(seen)
            with forward(None):
                decoded = torch.ones(len(case["decode_loc"]), 1, 2 * WIDTH, dtype=torch.uint8)
                seen = watch.before(pool=pool, kv=decoded, loc=torch.tensor(case["decode_loc"]), row_format=FORMAT)
                assert seen is None
    assert (watch.calls, watch.skipped, dict(watch.faults)) == (case["cp_size"], case["cp_size"], {})
