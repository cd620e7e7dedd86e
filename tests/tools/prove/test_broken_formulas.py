"""A proof that cannot fail is a defect: each formula, broken on purpose in the module that runs, is refuted."""

from collections.abc import Callable
from typing import Any

import pytest

from dsa_contracts.core.errors import ContractError
from dsa_contracts.dsa.layout import Layout
from dsa_cp.layouts import Interleave, VllmReplicated, VllmZigzag, Zigzag, build_batches, formulas
from dsa_cp.tools.prove.prover import answer, questions
from dsa_cp.tools.prove.results import Outcome, Result

Formula = Callable[..., Any]

REAL: dict[str, Formula] = {
    name: value
    for name, value in vars(formulas).items()
    if callable(value) and not isinstance(value, type) and getattr(value, "__module__", "") == formulas.__name__
}


def plus_one(name: str) -> Formula:
    return lambda *args: REAL[name](*args) + 1


def stop_plus_one(name: str) -> Formula:
    def bounds(*args: Any) -> tuple[Any, Any]:
        start, stop = REAL[name](*args)
        return start, stop + 1

    return bounds


def floor_quotient(value: Any, divisor: Any, ops: Any) -> Any:
    return ops.divide(value, divisor)


def unclamped(value: Any, low: Any, high: Any, ops: Any) -> Any:
    return value


def swapped_halves(cp_size: int, rank: Any, half: Any) -> Any:
    return rank + half * cp_size


def remainder_last(length: Any, num_chunks: int, index: Any, ops: Any) -> Any:
    """Where a chunk starts when the last chunk takes the whole remainder; the end is not the length."""
    return index * ops.divide(length, num_chunks)


def unbounded_chunk(length: Any, num_chunks: int, index: Any, ops: Any) -> Any:
    return index * REAL["ceil_div"](length, num_chunks, ops)


def never_replicated(length: Any, cp_size: int, ops: Any) -> Any:
    return length < 0


def too_rarely_replicated(length: Any, cp_size: int, ops: Any) -> Any:
    return length < 2 * cp_size


def reversed_owner(token: Any, block: int, cp_size: int, ops: Any) -> Any:
    return cp_size - 1 - REAL["interleave_owner"](token, block, cp_size, ops)


def token_of_block_one(place: Any, block: int, cp_size: int, rank: Any, ops: Any) -> Any:
    return place * cp_size + rank


def all_tokens(start: Any, stop: Any, extend_len: Any, ops: Any) -> Any:
    return stop - start


def without_prefix(prefix_len: Any, token: Any) -> Any:
    return token + 0 * prefix_len


def gathered_without_rank(rank: Any, nnz_padded: Any, place: Any) -> Any:
    return place + 0 * nnz_padded


def without_first_row(first_row: Any, token: Any) -> Any:
    return token + 0 * first_row


def before_its_rank(length: Any, ordinal: Any, cp_size: int, rank: Any, half: Any, ops: Any) -> tuple[Any, Any]:
    start, stop = REAL["sharded_decode_bounds"](length, ordinal, cp_size, rank + 1, half, ops)
    return start, stop


def same_slot_twice(slot: Any, ops: Any) -> tuple[Any, Any]:
    return ops.divide(slot, 2), 0 * slot


def heads_only(slot: Any, num_requests: int, ops: Any) -> tuple[Any, Any]:
    return slot % num_requests, 0 * slot


BROKEN: list[tuple[str, str, Formula, Layout]] = [
    ("ceil_div", "rounds down", floor_quotient, VllmZigzag()),
    ("round_up", "one more", plus_one("round_up"), Zigzag()),
    ("clamp", "does not", unclamped, Interleave(3)),
    ("half_chunk", "tail chunks in rising order", swapped_halves, Zigzag()),
    ("half_chunk", "one more", plus_one("half_chunk"), VllmZigzag()),
    ("chunk_start", "remainder lost", remainder_last, Zigzag()),
    ("chunk_start", "one more", plus_one("chunk_start"), Zigzag()),
    ("equal_chunk_start", "past the end", unbounded_chunk, VllmZigzag()),
    ("zigzag_slot", "heads twice", heads_only, Zigzag()),
    ("zigzag_bounds", "one token more", stop_plus_one("zigzag_bounds"), Zigzag()),
    ("vllm_slot", "heads twice", same_slot_twice, VllmZigzag()),
    ("vllm_bounds", "one token more", stop_plus_one("vllm_bounds"), VllmZigzag()),
    ("sharded_decode_bounds", "on the rank before", before_its_rank, VllmZigzag()),
    ("sharded_decode_bounds", "one token more", stop_plus_one("sharded_decode_bounds"), VllmZigzag()),
    ("is_replicated", "never", never_replicated, VllmReplicated()),
    ("is_replicated", "always", lambda length, cp_size, ops: length >= 0, VllmReplicated()),
    ("is_replicated", "too rarely", too_rarely_replicated, VllmReplicated()),
    ("replicated_bounds", "one token more", stop_plus_one("replicated_bounds"), VllmReplicated()),
    ("replicated_written", "by all", lambda length, cp_size, rank, ops: 1 + 0 * length, VllmReplicated()),
    ("first_rank_writes", "all ranks", lambda rank, ops: 1, VllmReplicated()),
    ("whole_bounds", "the first token is missing", lambda length, half: (1 + 0 * length, length), VllmReplicated()),
    ("interleave_owner", "in falling order", reversed_owner, Interleave()),
    ("interleave_count", "one more", plus_one("interleave_count"), Interleave()),
    ("interleave_token", "of block 1", token_of_block_one, Interleave(16)),
    ("real_tokens", "padding too", all_tokens, Zigzag()),
    ("padded_size", "not rounded", lambda rows, row_alignment, ops: rows, Zigzag()),
    ("padded_size", "one more", plus_one("padded_size"), Interleave()),
    ("gathered_index", "without the rank", gathered_without_rank, Zigzag()),
    ("row_of", "without the first row", without_first_row, VllmZigzag()),
    ("position_of", "without the prefix", without_prefix, Zigzag()),
    ("causal_len_of", "the position", lambda position: position, Interleave()),
]


def refuted(layout: Layout) -> list[Result]:
    """What is refuted on two ranks, for one request and for two."""
    found = (result for question in questions([layout], [2]) for result in answer(question, (1, 2), 20.0))
    return [result for result in found if result.outcome is Outcome.REFUTED]


@pytest.mark.parametrize(("name", "how", "broken", "layout"), BROKEN, ids=[f"{name}-{how}" for name, how, _, _ in BROKEN])
def test_a_broken_formula_is_refuted(
    name: str, how: str, broken: Formula, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formulas, name, broken)
    found = refuted(layout)
    assert found
    assert any(result.counterexample is not None for result in found)


def test_every_formula_is_broken_once() -> None:
    helpers = {"_smaller", "_larger", "_choose_int"}
    assert set(REAL) - helpers == {name for name, _, _, _ in BROKEN}


def test_lengths_that_refute_a_broken_cut_make_a_real_batch_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formulas, "chunk_start", remainder_last)
    (found,) = [each for each in refuted(Zigzag()) if each.obligation == "rows_have_one_writer" and each.requests == 1]
    assert found.counterexample is not None
    assert found.counterexample.extend_lens == (1,)
    with pytest.raises(ContractError, match="row 0 is lost: zigzag has 0 written copies of it"):
        build_batches(Zigzag(), 2, found.counterexample.extend_lens)
