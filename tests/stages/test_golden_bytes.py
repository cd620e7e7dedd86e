"""The stages against bytes recorded from the real sglang 0.5.15 and 0.5.23: every case of `tests/golden`.

The payload of token t is `(37 t + 11 c + 5) % 256` in column c; a row is 8 latent and 4 rope bytes.

One difference, on purpose: engine padding (`num_tokens` above the sum of the lengths). sglang gathers these rows like any
other and 0.5.15 writes them to the slots that the engine gives for them; here a padding row is 0 in the collective, is
dropped by `restore_order`, and is never written. `test_rows_of_engine_padding_are_never_written` shows both.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import Comm, CpBatch, Layout, checking_values
from dsa_contracts.dsa.row_formats import fp8_format
from dsa_contracts.dsa.states import Fp8Row, PackedRowStride, Rotated
from dsa_cp.comm import run_ranks
from dsa_cp.layouts import Interleave, Zigzag, build_batches
from dsa_cp.stages import all_gather_kv, rebuild_positions, reorder_causal_lens, restore_order, split_kv, write_kv
from tests.support.branded import packed, pool_of

GOLDEN = Path(__file__).parents[1] / "golden"
FORMAT = fp8_format(8, 4)
EMPTY = 0xEE
Case = dict[str, Any]
PATHS = [path for path in sorted(GOLDEN.glob("sglang-*.json")) if not path.stem.endswith("batches")]
FILES: dict[str, Case] = {path.stem: json.loads(path.read_text()) for path in PATHS}
CASES = [
    pytest.param(name, case, id=f"{name}-{case['name']}-cp{case['cp_size']}-{case.get('physical_padding', '')}")
    for name, file in FILES.items()
    for case in file["cases"]
]


def payload(tokens: list[int]) -> Tensor:
    """Recorded bytes of tokens; zeros for -1."""
    rows = torch.tensor(tokens)[:, None]
    return torch.where(rows < 0, 0, (37 * rows + 11 * torch.arange(12) + 5) % 256).byte()


def recorded(param: Any) -> Case:
    """The case of a pytest parameter."""
    case: Case = param.values[1]
    return case


def forward_of(case: Case) -> list[Case]:
    """What the backend's forward pass was seen to do on each rank; empty where a rank owns no token in 0.5.15."""
    ranks = case["ranks"]
    return ranks if "slots" in ranks[0] else [rank["forward_trtllm"] for rank in ranks if "forward_trtllm" in rank]


WITH_BYTES = [param for param in CASES if "fp8_kv_gather" in recorded(param)]
WITH_FORWARD = [param for param in CASES if forward_of(recorded(param))]


def batches_of(name: str, case: Case) -> tuple[CpBatch[Layout], ...]:
    layout: Layout = Zigzag() if name.endswith(("in-seq-split", "zigzag")) else Interleave()
    padded = list(case["extend_lens"])
    padded[-1] += case["num_tokens"] - sum(padded)
    forward, nnz = forward_of(case), sum(case["extend_lens"])
    is_aligned = case.get("physical_padding") and not name.endswith("zigzag")
    return build_batches(
        layout,
        case["cp_size"],
        case["extend_lens"],
        case["prefix_lens"],
        padded_lens=padded,
        row_alignment=case["cp_size"] if is_aligned else 1,
        out_cache_loc=torch.tensor(forward[0]["cache_loc"][:nnz]) if forward else torch.arange(nnz),
    )


class Recording:
    """A group that keeps what this rank puts into its collective."""

    def __init__(self, comm: Comm) -> None:
        self.comm, self.size, self.rank = comm, comm.size, comm.rank
        self.agree, self.fail, self.done = comm.agree, comm.fail, comm.done
        self.sent: list[Tensor] = []

    def all_gather(self, rows: Tensor) -> Tensor:
        self.sent.append(rows)
        return self.comm.all_gather(rows)


def gather(made: tuple[CpBatch[Any], ...]) -> list[tuple[Tensor, Any, Any]]:
    """Of each rank what it sent, and the gathered rows in rank-major and in sequence order."""

    def body(comm: Comm) -> tuple[Tensor, Any, Any]:
        batch, group = made[comm.rank], Recording(comm)
        kv = packed(payload(batch.local_rows.tolist()), Fp8Row, Rotated, batch)
        gathered = all_gather_kv(kv, FORMAT, batch, group)
        return group.sent[0], gathered, restore_order(gathered, batch)

    with checking_values():
        return run_ranks(len(made), body)


def real(tokens: list[int], nnz: int) -> list[int]:
    """Recorded rows with engine padding as -1."""
    return [token if token < nnz else -1 for token in tokens]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_gathered_bytes_are_the_payload_in_token_order(name: str, case: Case) -> None:
    made = batches_of(name, case)
    for rank, batch, (sent, _, restored) in zip(case["ranks"], made, gather(made), strict=True):
        assert torch.equal(restored, payload(list(range(batch.nnz))))
        if "collective_input_rows" in rank:
            assert torch.equal(sent, payload(real(rank["collective_input_rows"], batch.nnz)))
        for seen in forward_of(case):
            assert seen["collective_dtype"] == "uint8"
            assert list(sent.shape) == seen.get("collective_input_shape", seen["collective_shape"])


@pytest.mark.parametrize(("name", "case"), WITH_BYTES)
def test_halves_have_the_bytes_and_strides_that_the_strategy_hands_on(name: str, case: Case) -> None:
    made = batches_of(name, case)
    for rank, batch, (sent, _, restored) in zip(case["fp8_kv_gather"]["ranks"], made, gather(made), strict=True):
        assert sent.tolist() == rank["collective_input"]
        k_nope, k_rope = split_kv(restored, FORMAT, PackedRowStride, batch)
        assert k_nope.view(torch.uint8).tolist() == rank["k_out"]
        assert k_rope.view(torch.uint8).tolist() == rank["k_rope_out"]
        strides = [rank["k_out_stride"], rank["k_rope_out_stride"], rank["k_rope_out_storage_offset"]]
        assert [list(k_nope.stride()), list(k_rope.stride()), k_rope.storage_offset()] == strides
        assert str(k_nope.dtype) == f"torch.{rank['out_dtype']}"


@pytest.mark.parametrize(("name", "case"), WITH_FORWARD)
def test_positions_and_lengths_are_those_that_the_backend_was_given(name: str, case: Case) -> None:
    topk = FILES[name].get("dsa_index_topk")
    for seen, batch in zip(forward_of(case), batches_of(name, case), strict=False):
        # Padding of the collective follows; the engine's own padding is among the recorded rows.
        positions = rebuild_positions(batch.positions, batch.padded_rows, batch).tolist()
        lens = reorder_causal_lens(batch.causal_lens, batch.padded_rows, batch).clamp(max=topk).tolist()
        more = [0] * (batch.nnz_padded - len(seen["rope_positions"]))
        assert positions == seen["rope_positions"] + more
        assert lens == seen["seq_lens_to_kernel"] + more


@pytest.mark.parametrize(("name", "case"), WITH_FORWARD)
def test_written_halves_and_slots_are_those_of_the_engine(name: str, case: Case) -> None:
    made = batches_of(name, case)
    for seen, batch, (_, gathered, restored) in zip(forward_of(case), made, gather(made), strict=False):
        pages = seen["kv_shape"][0]
        pools = [pool_of(torch.full((pages, 64, 12), EMPTY, dtype=torch.uint8), Fp8Row) for _ in range(2)]
        with checking_values():
            write_kv(pools[0], gathered, given_loc(batch.rank_major_loc), FORMAT, batch)
            write_kv(pools[1], restored, given_loc(batch.out_cache_loc), FORMAT, batch)
        assert torch.equal(*pools)
        written = {slot: row for slot, row in enumerate(pools[0].view(-1, 12).tolist()) if row != [EMPTY] * 12}
        assert written == recorded_slots(case, batch.nnz)
        if "k_written_stride" in seen:
            k_nope, k_rope = split_kv(restored, FORMAT, PackedRowStride, batch)
            strides = [seen["k_written_stride"], seen["k_rope_written_stride"]]
            assert [list(k_nope.stride()), list(k_rope.stride())] == strides


def given_loc(loc: Any) -> Any:
    return loc


def recorded_slots(case: Case, nnz: int) -> dict[int, list[int]]:
    """Slot -> bytes of the real tokens, as rank 0 wrote them; the recording checked that the other ranks wrote the same."""
    first = forward_of(case)[0]
    if "slots" in first:
        return {int(slot): row for slot, row in first["slots"].items()}
    halves = zip(first["k_written_bytes"], first["k_rope_written_bytes"], strict=True)
    rows = [latent + rope for latent, rope in halves]
    return dict(zip(first["cache_loc"][:nnz], rows[:nnz], strict=True))


def test_the_record_is_whole() -> None:
    assert (len(CASES), len(WITH_BYTES), len(WITH_FORWARD)) == (152, 4, 68)


def test_rows_of_engine_padding_are_never_written() -> None:
    """sglang 0.5.15 writes 30 of them over all cases, to slots that the engine gave; 0.5.23 writes none."""
    rows_of_padding = 0
    for name in ("sglang-0.5.15-in-seq-split", "sglang-0.5.15-round-robin-split"):
        for case in (case for case in FILES[name]["cases"] if forward_of(case)):
            seen, made = forward_of(case)[0], batches_of(name, case)
            extra = seen["cache_loc"][made[0].nnz :]
            rows_of_padding += len(extra)
            tokens = list(range(made[0].nnz, case["num_tokens"]))
            assert seen["k_written_bytes"][made[0].nnz :] == payload(tokens)[:, :8].tolist()
            for batch, (_, gathered, _) in zip(made, gather(made), strict=True):
                assert batch.rank_major_loc is not None
                assert set(extra).isdisjoint(batch.rank_major_loc.tolist())
                assert not bool(gathered[batch.gathered_rows < 0].any())
    assert rows_of_padding == 30
