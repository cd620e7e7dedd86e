"""Invariants that read device data, in the stages that have them: each fires in values mode alone, and has a near miss."""

from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import CpBatch, Mode, checking_values, contract_of, stage
from dsa_contracts import stages as contracts
from dsa_contracts.core.invariant import Call, Invariant
from dsa_contracts.core.marks import F32
from dsa_contracts.dsa import invariants
from dsa_contracts.dsa.row_formats import RowFormat, RowPart
from dsa_contracts.dsa.states import Bf16Row, Raw, RowIds, Sequence
from dsa_cp.stages import rebuild_positions, reorder_causal_lens
from tests.support.messages import contract_and_ran, refusal
from tests.support.small_stages import batch_of, global_rows, local, raw, rows_of


def ints(*values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)


def paged(*pages: int, **options: Any) -> CpBatch[Any]:
    """Seven tokens on rank 0 of two, on pages of four slots of which two are used."""
    table = torch.tensor([pages or (2, 0, 9)], dtype=torch.int32)
    return batch_of(page_table=table, page_size=4, out_cache_loc=torch.arange(7), **options)


BATCH = paged()
LENS = ints(1, 2, 7).int()
TOPK = {"topk_indices": ints([0, -1], [1, 0], [6, 5]), "causal_lens": LENS}
SCALED = torch.cat([torch.zeros(3, 4), torch.tensor([[1.0], [2.0], [3.0]])], dim=1)
POOL = torch.zeros(3, 4, 8)


ZEROS = (RowPart("zeros", F32, 4, 0), RowPart("scales", F32, 1, 16))
SCALES: Any = RowFormat("zeros", Bf16Row, ZEROS, is_quantized=True, key="zeros", scales="scales")
"""A row format of four float32 zeros and a float32 scale."""


def scaled_bytes(rows: Tensor) -> Tensor:
    return rows.view(torch.uint8)


def with_scale(row: int, value: float) -> Tensor:
    rows = SCALED.clone()
    rows[row, 4] = value
    return scaled_bytes(rows)


CASES: dict[str, tuple[Invariant, str, list[dict[str, Any]], list[tuple[dict[str, Any], str]]]] = {
    "rows": (
        invariants.rows_are_this_ranks(),
        "DSA119",
        [{"rows": ints(0, 1, 6)}, {"rows": ints(0, 1, 6, -1)}],
        [
            ({"rows": ints(0, 6, 1)}, "rows[1] is 6, local row 1 of this rank is 1"),
            ({"rows": ints(0, 1, 6, 0)}, "rows[3] is 0, local row 3 of this rank is -1"),
            ({"rows": ints(0, 1)}, "rows has 2 entries"),
        ],
    ),
    "local values": (
        invariants.local_values_match_rows("lens", "causal_lens", "DSA117", "causal_lens_match_rows"),
        "DSA117",
        [{"lens": LENS}, {"lens": ints(1, 2, 7, 0)}],
        [
            ({"lens": ints(1, 2, 3)}, "lens[2] is 3, for row 6 it is 7"),
            ({"lens": ints(1, 2, 7, 1)}, "lens[3] is 1, for padding it is 0"),
            ({"lens": ints(1, 2)}, "lens has 2 rows"),
        ],
    ),
    "slots in sequence order": (
        invariants.slots_are_legal(),
        "DSA116",
        [{"loc": ints(11, 0, 2, 1, 4, 3, 5), "pool": POOL}],
        [
            ({"loc": ints(12, 0, 2, 1, 4, 3, 5), "pool": POOL}, "loc[0] is 12, the pool has 12 slots"),
            ({"loc": ints(0, 1, 2, 2, 4, 3, 5), "pool": POOL}, "slot 2 is written more than once"),
            ({"loc": ints(0, 1, 2, -1, 4, 3, 5), "pool": POOL}, "6 slots are written, the batch has 7 new tokens"),
        ],
    ),
    "slots in rank-major order": (
        invariants.slots_are_legal(),
        "DSA116",
        [{"loc": ints(0, 1, 6, -1, 2, 3, 4, 5), "pool": POOL}, {"loc": ints(0, 1, 6, -9, 2, 3, 4, 5), "pool": POOL}],
        [
            ({"loc": ints(0, 1, 6, 7, 2, 3, 4, -1), "pool": POOL}, "loc[3] is 7, that gathered row is padding"),
            ({"loc": ints(0, 1, 6, 7, 2, 3, 4, 5), "pool": POOL}, "8 slots are written, the batch has 7 new tokens"),
        ],
    ),
    "top-k": (
        invariants.topk_is_in_range(),
        "DSA118",
        [TOPK],
        [
            (
                {"topk_indices": ints([0, 1], [1, 0], [6, 5]), "causal_lens": LENS},
                "topk_indices[0, 1] is 1, row 0 sees 1 keys",
            ),
            (
                {"topk_indices": ints([0, -1], [-2, 0], [6, 5]), "causal_lens": LENS},
                "topk_indices[1, 0] is -2, row 1 sees 2 keys",
            ),
            (
                {"topk_indices": ints([0, -1], [1, 1], [6, 5]), "causal_lens": LENS},
                "row 1 of topk_indices names key 1 more than once",
            ),
        ],
    ),
    "pages": (
        invariants.pages_are_in_pool("pool"),
        "DSA114",
        [{"page_table": ints([2, 0, 9]), "pool": POOL}, {"page_table": ints([2, 0, -1]), "pool": POOL}],
        [
            ({"page_table": ints([2, 3, 0]), "pool": POOL}, "page_table[0, 1] is 3, pool has 3 pages"),
            ({"page_table": ints([-1, 0, 0]), "pool": POOL}, "page_table[0, 0] is -1, pool has 3 pages"),
        ],
    ),
    "scales in rows": (
        invariants.scales_in_rows_are_positive("kv"),
        "DSA112",
        [{"kv": scaled_bytes(SCALED)}, {"kv": with_scale(1, 1e-38)}],
        [
            ({"kv": with_scale(1, 0.0)}, "row 1 of kv has a scale that is not positive"),
            ({"kv": with_scale(2, float("nan"))}, "row 2 of kv has a scale that is not positive"),
            ({"kv": with_scale(0, float("inf"))}, "row 0 of kv has a scale that is not positive"),
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_invariant_of_values_holds_in_near_misses_and_fires_on_each_fault(name: str) -> None:
    invariant, code, near_misses, faults = CASES[name]
    assert (invariant.code, invariant.reads_data) == (code, True)
    for values in near_misses:
        assert invariant.check(Call("stage", values | {"batch": BATCH, "row_format": SCALES}, BATCH)) is None
    for values, text in faults:
        assert invariant.check(Call("stage", values | {"batch": BATCH, "row_format": SCALES}, BATCH)) == text


def test_positions_must_be_those_of_the_rows_that_a_brand_names() -> None:
    invariant, batch = invariants.positions_go_with("x"), batch_of(prefix_lens=[5])
    assert (invariant.code, invariant.reads_data) == ("DSA115", True)
    here, everywhere = raw(rows_of(), batch), global_rows(rows_of(7), Sequence, Raw, batch)

    def check(x: Tensor, *positions: int) -> str | None:
        return invariant.check(Call("stage", {"x": x, "positions": ints(*positions), "batch": batch}, batch))

    assert check(here, 5, 6, 11) is None
    assert check(here, 5, 6, 11, 0) is None
    assert check(everywhere, 5, 6, 7, 8, 9, 10, 11) is None
    assert check(rows_of(), 0, 1, 2) is None
    assert check(here, 0, 1, 2) == "positions[0] is 0, row 0 of x is at position 5"
    assert check(here, 5, 6) == "positions has 2 rows"
    assert check(everywhere, 5, 6, 11) == "positions has 3 rows, x goes by 7"


def test_values_are_checked_before_and_after_a_call_and_only_where_asked_for() -> None:
    batch = batch_of()
    flipped = local(batch.local_rows.flip(0), RowIds, batch)

    def short(causal_lens: Any, rows: Any, batch: Any) -> Any:
        return causal_lens[rows] - 1

    wrong = stage(contracts.reorder_causal_lens, mode=Mode.DEVELOPMENT)(short)
    for function, rows in ((reorder_causal_lens, flipped), (wrong, batch.local_rows)):
        function(batch.causal_lens, rows, batch)
    with checking_values():
        before = refusal(reorder_causal_lens, batch.causal_lens, flipped, batch)
        after = refusal(wrong, batch.causal_lens, batch.local_rows, batch)
        rebuild_positions(batch.positions, batch.padded_rows, batch)
    contract = contract_of(reorder_causal_lens)
    facts = "\n  where     cp_rank=0 of 2, zigzag\n"
    assert before == (
        "StageInputError DSA119: reorder_causal_lens: rows[0] is 6, local row 0 of this rank is 0\n"
        f"  expected  rows_are_this_ranks: rows is batch.local_rows or batch.padded_rows{facts}"
        f"{contract_and_ran(reorder_causal_lens)}\n"
        "  try       pass batch.local_rows or batch.padded_rows of this rank's view of the batch"
    )
    assert after == (
        "StageOutputError DSA117: reorder_causal_lens: local_causal_lens[0] is 0, for row 0 it is 1\n"
        "  expected  causal_lens_match_rows: local_causal_lens[i] = batch.causal_lens[row of i], 0 for padding"
        f"{facts}{contract_and_ran(wrong)}\n  try       {contract.advice_for('DSA117')}"
    )
