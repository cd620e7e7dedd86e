"""Stages on ranks that share a group: one rank's refusal, or another layer, is every rank's error."""

from typing import Any

import pytest
import torch

from dsa_contracts import Comm, CpBatch
from dsa_contracts.core.errors import RankError
from dsa_contracts.dsa.row_formats import bf16_format
from dsa_contracts.dsa.states import Bf16Row, Packed, Raw, Rotated
from dsa_cp.comm import SimulatedGroup, run_ranks
from dsa_cp.stages import all_gather_kv
from tests.support.small_stages import batches_of, local

FORMAT = bf16_format(2, 2)


class Noted:
    """A group of one rank that notes what it is asked to agree on."""

    size, rank = 1, 0

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self.said: list[str] = []

    def agree(self, fingerprint: str) -> None:
        self.said.append(f"agree {fingerprint}")
        self.comm.agree(fingerprint)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.comm, name)


def packed(batch: CpBatch[Any], width: int = 8, state: object = Rotated) -> Any:
    mark: Any = Packed
    return local(torch.ones(batch.nnz_local, width, dtype=torch.uint8), mark[Bf16Row, state], batch)


def test_a_simulated_group_is_what_a_contract_takes() -> None:
    assert isinstance(SimulatedGroup(1).comm(0), Comm)


def test_ranks_compare_stage_layer_rows_and_batch_before_the_payload_moves() -> None:
    comm: Any = Noted(SimulatedGroup(1).comm(0))
    batch = batches_of(cp_size=1)[0].at_layer(5)
    all_gather_kv(packed(batch), FORMAT, batch, comm)
    assert comm.said == [
        "agree all_gather_kv layer=5 u8[rows, 8] bf16 zigzag cp_size=1 nnz_padded=7 extend=[7] prefix=[0] plan=-",
    ]


def test_a_rank_that_is_refused_before_the_collective_ends_all_ranks_with_the_same_text() -> None:
    batches, texts = batches_of(), {}

    def body(comm: Comm) -> None:
        batch = batches[comm.rank]
        kv = packed(batch, 9 if comm.rank else 8)
        try:
            all_gather_kv(kv, FORMAT, batch, comm)
        except RankError as error:
            texts[comm.rank] = str(error)
            raise

    with pytest.raises(RankError):
        run_ranks(2, body)
    assert texts[0] == texts[1]
    assert texts[0].startswith(
        "RankError DSA502: rank 1 of 2 failed before collective 1\n  rank 0    all_gather_kv layer=None"
    )
    assert "StageInputError DSA110: all_gather_kv: kv is 9 bytes wide, a row of bf16 has 8" in texts[0]


def test_ranks_that_came_with_different_layers_are_told_each_others() -> None:
    batches = batches_of()

    def body(comm: Comm) -> None:
        batch = batches[comm.rank].at_layer(comm.rank)
        all_gather_kv(packed(batch, 8, Raw), FORMAT, batch, comm)

    with pytest.raises(RankError) as error:
        run_ranks(2, body)
    facts = "u8[rows, 8] bf16 zigzag cp_size=2 nnz_padded=4 extend=[7] prefix=[0] plan=-"
    assert str(error.value) == (
        "RankError DSA501: ranks 0, 1 of 2 came to collective 1 with different facts\n"
        f"  rank 0    all_gather_kv layer=0 {facts}\n"
        f"  rank 1    all_gather_kv layer=1 {facts}"
    )
