"""Each wrong variant is refuted, with the smallest lengths; the same lengths show it on real batches."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

from dsa_contracts import RopeStyle, brand
from dsa_contracts.core.errors import StageInputError
from dsa_contracts.dsa.batch import CpBatch
from dsa_cp.layouts import build_batches, layout_by_name
from dsa_cp.stages import rope_quantize
from dsa_cp.tools.prove.cut import Cut
from dsa_cp.tools.prove.prover import Question, answer
from dsa_cp.tools.prove.results import Counterexample, Outcome, Result
from dsa_cp.tools.prove.terms import INT_LOGIC
from dsa_cp.tools.prove.wrong import VARIANTS, Variant


class Case(NamedTuple):
    """A variant on a layout and two ranks, the smallest lengths that refute it, and what is wrong there."""

    variant: str
    layout: str
    extend: tuple[int, ...]
    about: str
    says: int | str
    right: int | str
    prefix: tuple[int, ...] = ()
    padded: tuple[int, ...] = ()
    token: int | None = None


BLOCKS = "interleave(block=16)"

CASES = [
    Case("pad_ceil_nnz", "zigzag", (1, 1), "rank 0", 1, 2),
    Case("pad_ceil_nnz", "vllm_zigzag", (1, 1), "rank 0", 1, 2),
    Case("pad_ceil_nnz", "vllm_replicated", (2,), "rank 0", 1, 2),
    Case("pad_ceil_nnz", BLOCKS, (2,), "rank 0", 1, 2),
    Case("uniform_rank_lens", "zigzag", (1,), "rank 0", 0, 1),
    Case("uniform_rank_lens", "interleave", (1,), "rank 0", 0, 1),
    Case("uniform_rank_lens", "vllm_zigzag", (1,), "rank 0", 0, 1),
    Case("padding_counted", "zigzag", (1,), "rank 1", 1, 0, padded=(2,)),
    Case("padding_counted", BLOCKS, (1,), "rank 0", 2, 1, padded=(2,)),
    Case("prefix_from_padded", "zigzag", (1,), "rank 0, head chunk of request 0", 0, 1, (1,), (2,), 0),
    Case("prefix_from_padded", "interleave", (1,), "rank 0, share of request 0", 0, 1, (1,), (2,), 0),
    Case("borders_from_real_lens", "vllm_zigzag", (3, 4), "rank 0", 1, 2, padded=(4, 4)),
    Case("localised_by_subtraction", "interleave", (1,), "rank 1", -1, 0),
    Case("localised_by_subtraction", BLOCKS, (1,), "rank 1", -1, 0),
    Case("restore_block_one", BLOCKS, (2,), "rank 0, share of request 0", 2, 1, token=1),
    Case("identity_causal_lens", "zigzag", (2,), "rank 1, head chunk of request 0", 1, 2, token=1),
    Case("identity_causal_lens", "interleave", (2,), "rank 1, share of request 0", 1, 2, token=1),
    Case("positions_of_batch", "zigzag", (1, 1), "rank 0, head chunk of request 1", 1, 0, token=0),
    Case("positions_of_batch", "interleave", (1, 1), "rank 1, share of request 1", 1, 0, token=0),
    Case("replicas_all_write", "vllm_replicated", (1,), "request 0", 2, 1, token=0),
    Case("slots_not_permuted", "zigzag", (2, 1), "rank 1, head chunk of request 0", 2, 1, token=1),
    Case("slots_not_permuted", "interleave", (3,), "rank 0, share of request 0", 1, 2, token=2),
    Case("gather_before_rope", "zigzag", (1,), "gather_before_rope, rope_quantize with nnz_local rows", 1, 0),
    Case("gather_before_rope", "vllm_zigzag", (1,), "gather_before_rope, rope_quantize with nnz_local rows", 1, 0),
    Case("gather_before_rope", "interleave", (1,), "gather_before_rope, rope_quantize with nnz_local rows", 1, 0),
    Case(
        "gather_before_rope",
        "vllm_replicated",
        (1,),
        "gather_before_rope, rope_quantize with nnz_local rows",
        "Global[Sequence]",
        "Local[VllmReplicated]",
    ),
]


def results_of(variant: Variant, layout: str, cp_size: int = 2) -> list[Result]:
    return list(answer(Question(variant.obligation, layout_by_name(layout), cp_size, variant), (1, 2, 3), 60.0))


def smallest(results: list[Result]) -> Counterexample:
    return min((each.counterexample for each in results if each.counterexample), key=lambda found: found.order)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.variant}-{case.layout}")
def test_each_wrong_variant_is_refuted_with_the_smallest_lengths(case: Case) -> None:
    found = smallest(results_of(VARIANTS[case.variant], case.layout))
    padded, prefix = case.padded or case.extend, case.prefix or (0,) * len(case.extend)
    assert (found.extend_lens, found.padded_lens, found.prefix_lens) == (case.extend, padded, prefix)
    assert (found.about, found.says, found.right, found.row_alignment) == (case.about, case.says, case.right, 1)
    assert dict(found.values).get("token") == case.token


def test_every_variant_has_a_case() -> None:
    assert {case.variant for case in CASES} == set(VARIANTS)


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "gather_before_rope"])
@pytest.mark.parametrize("cp_size", [3, 4])
def test_each_wrong_variant_is_refuted_for_larger_groups(variant: str, cp_size: int) -> None:
    wrong = VARIANTS[variant]
    assert Outcome.REFUTED in {result.outcome for result in results_of(wrong, wrong.layouts[0], cp_size)}


def test_ceil_of_nnz_is_right_for_one_request_cut_by_zigzag_and_for_an_interleave_of_single_tokens() -> None:
    wrong = VARIANTS["pad_ceil_nnz"]
    assert [result.outcome for result in results_of(wrong, "zigzag")] == [Outcome.PROVEN, Outcome.REFUTED, Outcome.REFUTED]
    assert {result.outcome for result in results_of(wrong, "interleave")} == {Outcome.PROVEN}


def int_cut(case: Case) -> Cut:
    """The variant's composition on the lengths of a case."""
    prefix, padded = case.prefix or (0,) * len(case.extend), case.padded or case.extend
    rules = VARIANTS[case.variant].rules
    return Cut(layout_by_name(case.layout), 2, case.extend, prefix, padded, 1, INT_LOGIC, rules)


def real_batches(cut: Cut) -> tuple[CpBatch[Any], ...]:
    """The batches of the same lengths; the slot of each row is its number."""
    slots = torch.arange(sum(cut.extend))
    return build_batches(cut.layout, 2, cut.extend, cut.prefix, padded_lens=cut.padded, out_cache_loc=slots)


Replay = Callable[[Case, Cut, tuple[CpBatch[Any], ...]], tuple[int, int]]


def rank_of(case: Case) -> int:
    return int(case.about.removeprefix("rank ")[0])


def at_token(case: Case, cut: Cut) -> tuple[Any, int]:
    """The piece and the row that a case is about."""
    (piece,) = (piece for piece in cut.all_pieces if f"rank {piece.rank}, {piece.name}" == case.about)
    return piece, cut.row(piece.request, case.token)


def replay_pad(case: Case, cut: Cut, batches: tuple[CpBatch[Any], ...]) -> tuple[int, int]:
    return cut.nnz_padded, batches[0].nnz_padded


def replay_rank_len(case: Case, cut: Cut, batches: tuple[CpBatch[Any], ...]) -> tuple[int, int]:
    return cut.rules.rank_len(cut, rank_of(case)), batches[rank_of(case)].nnz_local


def replay_position(case: Case, cut: Cut, batches: tuple[CpBatch[Any], ...]) -> tuple[int, int]:
    piece, row = at_token(case, cut)
    return cut.rules.position(cut, piece, case.token), int(batches[0].positions[row])


def replay_causal_len(case: Case, cut: Cut, batches: tuple[CpBatch[Any], ...]) -> tuple[int, int]:
    piece, row = at_token(case, cut)
    return cut.rules.causal_len(cut, piece, case.token), int(batches[0].causal_lens[row])


def replay_border(case: Case, cut: Cut, batches: tuple[CpBatch[Any], ...]) -> tuple[int, int]:
    first_row = case.extend[0]
    return cut.rules.first_place(cut, 0, 2), batches[0].padded_rows.tolist().index(first_row)


def replay_local_len(case: Case, cut: Cut, batches: tuple[CpBatch[Any], ...]) -> tuple[int, int]:
    held = batches[rank_of(case)].local_rows
    return cut.rules.local_len(cut, rank_of(case), 0, sum(cut.padded)), int((held < 0).sum())


def replay_restore(case: Case, cut: Cut, batches: tuple[CpBatch[Any], ...]) -> tuple[int, int]:
    piece, row = at_token(case, cut)
    return cut.rules.restore(cut, piece.request, case.token), int(batches[0].restore_index[row])


def replay_writers(case: Case, cut: Cut, batches: tuple[CpBatch[Any], ...]) -> tuple[int, int]:
    copies = sum(piece.written for piece in cut.all_pieces if piece.holds(case.token))
    loc = batches[0].rank_major_loc
    assert loc is not None
    return copies, int((loc == 0).sum())


def replay_slot(case: Case, cut: Cut, batches: tuple[CpBatch[Any], ...]) -> tuple[int, int]:
    piece, _ = at_token(case, cut)
    loc = batches[0].rank_major_loc
    assert loc is not None
    return cut.rules.slot_row(cut, piece, case.token), int(loc[cut.gathered_index(piece, case.token)])


REPLAYS: dict[str, Replay] = {
    "pad_ceil_nnz": replay_pad,
    "uniform_rank_lens": replay_rank_len,
    "padding_counted": replay_rank_len,
    "prefix_from_padded": replay_position,
    "borders_from_real_lens": replay_border,
    "localised_by_subtraction": replay_local_len,
    "restore_block_one": replay_restore,
    "identity_causal_lens": replay_causal_len,
    "positions_of_batch": replay_position,
    "replicas_all_write": replay_writers,
    "slots_not_permuted": replay_slot,
}


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.variant in REPLAYS], ids=lambda case: f"{case.variant}-{case.layout}"
)
def test_the_counter_example_holds_on_ints_and_a_real_batch_has_what_is_right(case: Case) -> None:
    cut = int_cut(case)
    assert REPLAYS[case.variant](case, cut, real_batches(cut)) == (case.says, case.right)


@pytest.mark.parametrize("layout", ["zigzag", "interleave"])
def test_k_of_all_ranks_is_refused_by_rope_quantize_on_the_smallest_batch(layout: str) -> None:
    # One token on two ranks: rank 1 has no query, and one row of gathered K.
    batch = build_batches(layout_by_name(layout), 2, [1])[1]

    def rows(*shape: int) -> Any:
        return brand(torch.zeros(*shape, dtype=torch.bfloat16))

    k_nope, k_rope = rows(1, 512), rows(1, 64)
    with pytest.raises(StageInputError) as error:
        rope_quantize(
            rows(0, 2, 512),
            rows(0, 2, 64),
            k_nope,
            k_rope,
            brand(batch.positions[batch.local_rows]),
            brand(torch.zeros(1, 64)),
            RopeStyle.NEOX,
            1.0,
            1.0,
            batch,
        )
    assert error.value.headline == "rope_quantize: k_nope has 1 rows, q_nope has 0"
