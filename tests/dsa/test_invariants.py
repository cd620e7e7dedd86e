"""Invariants over metadata and host numbers: each fires, and has a near miss in which it does not."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import CpBatch, RopeStyle, contract_of
from dsa_contracts import stages as contracts
from dsa_contracts.core.errors import ContractDefinitionError
from dsa_contracts.core.invariant import Call, Invariant
from dsa_contracts.core.scope import Scope
from dsa_contracts.dsa import invariants
from dsa_contracts.dsa.invariants.reading import batch_of as batch_read_of
from dsa_contracts.dsa.invariants.reading import row_format_of
from dsa_contracts.dsa.row_formats import bf16_format, fp8_656_format, fp8_format
from dsa_cp.comm import SimulatedGroup
from dsa_cp.stages import apply_rope
from tests.support.messages import contract_and_ran, refusal
from tests.support.small_stages import args_of, batch_of, raw, rows_of


def wide(*shape: int) -> Tensor:
    return torch.zeros(*shape)


def scope_of(values: dict[str, Any]) -> Scope:
    batch: Scope = values.get("batch", Scope())
    return batch


def paged_batch() -> CpBatch[Any]:
    """Seven tokens behind a prefix of five: twelve keys on pages of four."""
    table = torch.tensor([[2, 0, 1]], dtype=torch.int32)
    return batch_of(prefix_lens=[5], page_table=table, page_size=4, out_cache_loc=torch.tensor([1, 2, 3, 4, 5, 6, 7]))


@dataclass(frozen=True)
class Case:
    """An invariant, a call in which it holds, and what turns that call into one that it refuses, with its words."""

    invariant: Invariant
    code: str
    holds: dict[str, Any]
    changes: tuple[tuple[dict[str, Any], str], ...]


BATCH = paged_batch()
CASES = (
    Case(
        invariants.row_width_matches_format("kv"),
        "DSA110",
        {"kv": wide(3, 576), "row_format": fp8_format()},
        (
            ({"kv": wide(3, 575)}, "kv is 575 bytes wide, a row of fp8 has 576"),
            ({"row_format": fp8_656_format()}, "kv is 576 bytes wide, a row of fp8_656 has 656"),
        ),
    ),
    Case(
        invariants.table_covers_positions(),
        "DSA111",
        {"cos_sin_cache": wide(12, 4), "batch": BATCH},
        (({"cos_sin_cache": wide(11, 4)}, "cos_sin_cache has 11 rows, positions of this batch go up to 11"),),
    ),
    Case(
        invariants.table_width_is_rope_dim(lambda call: int(call.number("rope_dim")), "rope_dim"),
        "DSA111",
        {"cos_sin_cache": wide(12, 4), "rope_dim": 4},
        (
            ({"rope_dim": 2}, "cos_sin_cache is 4 wide, rope_dim is 2"),
            ({"cos_sin_cache": wide(12, 3), "rope_dim": 3}, "cos_sin_cache is 3 wide, rope_dim is 3"),
        ),
    ),
    Case(
        invariants.rotates_at_most_all("x"),
        "DSA111",
        {"x": wide(3, 4), "rope_dim": 4},
        (
            ({"rope_dim": 5}, "rope_dim is 5, x has last dim 4"),
            ({"rope_dim": 0}, "rope_dim is 0, x has last dim 4"),
            ({"rope_dim": -2}, "rope_dim is -2, x has last dim 4"),
        ),
    ),
    Case(
        invariants.scale_is_positive("q_scale", "kv_scale"),
        "DSA112",
        {"q_scale": 1e-30, "kv_scale": 2},
        (
            ({"q_scale": 0.0}, "q_scale is 0.0"),
            ({"kv_scale": -1.0}, "kv_scale is -1.0"),
            ({"kv_scale": float("nan")}, "kv_scale is nan"),
            ({"q_scale": float("inf")}, "q_scale is inf"),
        ),
    ),
    Case(
        invariants.scale_is_one_unless_a_layer_has_one("kv_scale"),
        "DSA112",
        {"kv_scale": 1.0, "row_format": fp8_656_format()},
        (({"kv_scale": 0.5}, "kv_scale is 0.5, and rows of fp8_656 have no scale of the layer"),),
    ),
    Case(
        invariants.scale_is_one_unless_a_layer_has_one("kv_scale"),
        "DSA112",
        {"kv_scale": 0.5, "row_format": fp8_format()},
        (({"row_format": bf16_format()}, "kv_scale is 0.5, and rows of bf16 have no scale of the layer"),),
    ),
    Case(
        invariants.comm_is_the_batch_group(),
        "DSA113",
        {"comm": SimulatedGroup(2).comm(0), "batch": BATCH},
        (
            ({"comm": SimulatedGroup(2).comm(1)}, "comm is rank 1 of 2, the batch was cut for rank 0 of 2"),
            ({"comm": SimulatedGroup(4).comm(0)}, "comm is rank 0 of 4, the batch was cut for rank 0 of 2"),
        ),
    ),
    Case(
        invariants.widths_add_up("q", "q_nope", "q_rope"),
        "DSA124",
        {"q": wide(3, 6), "q_nope": wide(3, 4), "q_rope": wide(3, 2)},
        (({"q_rope": wide(3, 1)}, "q is 6 wide, q_nope + q_rope are 5"),),
    ),
    Case(
        invariants.widths_match_format(("k_nope", "k_nope"), ("k_rope", "k_rope")),
        "DSA124",
        {"k_nope": wide(3, 4), "k_rope": wide(3, 2), "row_format": bf16_format(4, 2)},
        (
            ({"k_nope": wide(3, 5)}, "k_nope is 5 wide, k_nope of bf16 has 4 elements"),
            ({"k_rope": wide(3, 1)}, "k_rope is 1 wide, k_rope of bf16 has 2 elements"),
        ),
    ),
    Case(
        invariants.page_size_is_the_batch_page_size("pool"),
        "DSA114",
        {"pool": wide(3, 4, 8), "batch": BATCH},
        (({"pool": wide(12, 1, 8)}, "pool has pages of 1 slots, the batch has page_size 4"),),
    ),
    Case(
        invariants.page_table_covers_batch(),
        "DSA114",
        {"page_table": wide(1, 3), "batch": BATCH},
        (({"page_table": wide(1, 2)}, "page_table has 2 columns of 4 slots, the longest request has 12 keys"),),
    ),
)
by_name = pytest.mark.parametrize("case", CASES, ids=lambda case: case.invariant.name)


@by_name
def test_an_invariant_holds_in_a_near_miss_and_fires_on_the_change(case: Case) -> None:
    assert case.invariant.check(Call("stage", case.holds, scope_of(case.holds))) is None
    for change, text in case.changes:
        assert case.invariant.check(Call("stage", case.holds | change, scope_of(case.holds | change))) == text


@by_name
def test_an_invariant_of_metadata_has_its_code_and_reads_no_data(case: Case) -> None:
    assert (case.invariant.code, case.invariant.reads_data) == (case.code, False)


def test_every_invariant_that_a_contract_names_is_about_a_parameter_or_a_return_value_of_it() -> None:
    for name in contracts.__all__:
        found = contract_of(getattr(contracts, name))
        names = {record.name for record in (*found.params, *found.returns)}
        assert {invariant.subject for invariant in (*found.requires, *found.ensures)} <= names, name


def test_a_violated_invariant_is_an_error_with_the_fact_as_what_was_expected() -> None:
    batch = batch_of()
    x, positions, _, _ = args_of(batch)
    short: Any = wide(6, 2)
    assert refusal(apply_rope, x, positions, short, 2, RopeStyle.NEOX, batch) == (
        "StageInputError DSA111: apply_rope: cos_sin_cache has 6 rows, positions of this batch go up to 6\n"
        f"  expected  table_covers_positions: {invariants.table_covers_positions().statement}\n"
        "  where     cp_rank=0 of 2, zigzag\n"
        f"{contract_and_ran(apply_rope)}\n"
        "  try       build the cos/sin table for prefix + extend of the longest request before the first layer"
    )
    long: Any = wide(7, 2)
    assert apply_rope(raw(rows_of(), batch), positions, long, 2, RopeStyle.NEOX, batch).shape == (3, 2)


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda call: call.tensor("scale"), "an invariant of stage reads scale as Tensor; it is float"),
        (lambda call: call.number("x"), "an invariant of stage reads x as a number; it is <class 'torch.Tensor'>"),
        (batch_read_of, "stage got no batch"),
        (row_format_of, "an invariant of stage reads row_format as RowFormat; it is NoneType"),
    ],
)
def test_an_invariant_that_reads_what_is_not_there_is_wrong_itself(read: Any, message: str) -> None:
    call = Call("stage", {"scale": 1.0, "x": wide(1), "batch": None, "row_format": None}, Scope())
    with pytest.raises(ContractDefinitionError) as error:
        read(call)
    assert str(error.value) == f"ContractDefinitionError DSA001: {message}"
