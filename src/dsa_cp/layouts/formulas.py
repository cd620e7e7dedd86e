"""Index arithmetic of the layouts, on one value at a time.

The same functions run on ints, on int64 tensors (element by element) and on z3 integer terms, so that what
`dsa-cp prove` proves is what the layouts and the index tensors compute. They use `+ - * % >=` and what an `Arithmetic`
brings; none of them branches on a value.

Words: a request of `length` tokens is cut into `2 * cp_size` chunks; half 0 of a rank is its head chunk, half 1 its
tail chunk; a slot is a place in the list of a rank's segments, empty ones counted.

Source: own derivation. The remainder-first chunks are those of sglang 0.5.15 and 0.5.23, the equal chunks those of vLLM
0.33, the interleave count is the formula of vllm-project/vllm#50391; the layouts' docstrings say where each is used.
"""

import operator
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import torch
from torch import Tensor


class Term(Protocol):
    """An int, an int64 tensor or a z3 integer term."""

    def __add__(self, other: Any, /) -> Self: ...
    def __radd__(self, other: Any, /) -> Self: ...
    def __sub__(self, other: Any, /) -> Self: ...
    def __rsub__(self, other: Any, /) -> Self: ...
    def __mul__(self, other: Any, /) -> Self: ...
    def __rmul__(self, other: Any, /) -> Self: ...
    def __mod__(self, other: Any, /) -> Self: ...
    def __ge__(self, other: Any, /) -> Any: ...


T = TypeVar("T", bound=Term)


class Arithmetic(NamedTuple, Generic[T]):
    """The operations whose spelling differs between ints, tensors and z3 terms.

    Attributes:
        divide: integer quotient, rounded down; divisors are positive.
        smaller: the smaller of two.
        larger: the larger of two.
        choose: the second where the first (a comparison) holds, else the third.
    """

    divide: Callable[[Any, Any], T]
    smaller: Callable[[Any, Any], T]
    larger: Callable[[Any, Any], T]
    choose: Callable[[Any, Any, Any], T]


def _smaller(left: Tensor | int, right: Tensor | int) -> Tensor:
    return torch.minimum(torch.as_tensor(left), torch.as_tensor(right))


def _larger(left: Tensor | int, right: Tensor | int) -> Tensor:
    return torch.maximum(torch.as_tensor(left), torch.as_tensor(right))


def _choose_int(condition: bool, yes: int, no: int) -> int:
    return yes if condition else no


INTS: Arithmetic[int] = Arithmetic(operator.floordiv, min, max, _choose_int)
TENSORS: Arithmetic[Tensor] = Arithmetic(operator.floordiv, _smaller, _larger, torch.where)


def ceil_div(value: T, divisor: T | int, ops: Arithmetic[T]) -> T:
    """Return the quotient rounded up."""
    return ops.divide(value + divisor - 1, divisor)


def round_up(value: T, multiple: T | int, ops: Arithmetic[T]) -> T:
    """Return the smallest multiple that is not below the value."""
    return ceil_div(value, multiple, ops) * multiple


def clamp(value: T, low: T | int, high: T | int, ops: Arithmetic[T]) -> T:
    """Return the value, moved into `low .. high`."""
    return ops.smaller(ops.larger(value, low), high)


def half_chunk(cp_size: int, rank: T | int, half: T | int) -> T | int:
    """Return the chunk of a rank's half: chunk `rank` is its head, chunk `2 * cp_size - 1 - rank` its tail."""
    return rank + half * (2 * cp_size - 1 - 2 * rank)


def chunk_start(length: T, num_chunks: int, index: T | int, ops: Arithmetic[T]) -> T:
    """Return where a chunk starts when the first `length % num_chunks` chunks are one token longer than the rest.

    For `index == num_chunks` it is the length.
    """
    return index * ops.divide(length, num_chunks) + ops.smaller(index, length % num_chunks)


def equal_chunk_start(length: T, num_chunks: int, index: T | int, ops: Arithmetic[T]) -> T:
    """Return where a chunk starts when chunks have `ceil(length / num_chunks)` tokens until none is left.

    For `index == num_chunks`, and for every chunk that is left empty, it is the length.
    """
    return ops.smaller(index * ceil_div(length, num_chunks, ops), length)


def zigzag_slot(slot: T, num_requests: int, ops: Arithmetic[T]) -> tuple[T, T]:
    """Return request and half of a slot: the heads of all requests, then the tails of all requests."""
    return slot % num_requests, ops.divide(slot, num_requests)


def zigzag_bounds(length: T, cp_size: int, rank: T | int, half: T | int, ops: Arithmetic[T]) -> tuple[T, T]:
    """Return the first token of a rank's head or tail chunk and the token after its last, remainder first."""
    chunk = half_chunk(cp_size, rank, half)
    return chunk_start(length, 2 * cp_size, chunk, ops), chunk_start(length, 2 * cp_size, chunk + 1, ops)


def vllm_slot(slot: T, ops: Arithmetic[T]) -> tuple[T, T]:
    """Return request and half of a slot: request by request, head and then tail."""
    return ops.divide(slot, 2), slot % 2


def is_replicated(length: T, cp_size: int, ops: Arithmetic[T]) -> Any:
    """Return whether equal chunks would leave one of them empty: a comparison, for `choose`."""
    return (2 * cp_size - 1) * ceil_div(length, 2 * cp_size, ops) >= length


def vllm_bounds(length: T, cp_size: int, rank: T | int, half: T | int, ops: Arithmetic[T]) -> tuple[T, T]:
    """Return start and stop of a rank's head or tail chunk, equal chunks until no token is left."""
    chunk = half_chunk(cp_size, rank, half)
    start = equal_chunk_start(length, 2 * cp_size, chunk, ops)
    return start, equal_chunk_start(length, 2 * cp_size, chunk + 1, ops)


def whole_bounds(length: T, half: T | int) -> tuple[T, T]:
    """Return start and stop of the halves of a request that a rank holds whole: the head is all of it, the tail is empty."""
    return half * length, length


def replicated_bounds(length: T, cp_size: int, rank: T | int, half: T | int, ops: Arithmetic[T]) -> tuple[T, T]:
    """Return start and stop of a rank's head or tail chunk; of a replicated request every rank holds the whole."""
    replicated, whole = is_replicated(length, cp_size, ops), whole_bounds(length, half)
    start, stop = vllm_bounds(length, cp_size, rank, half, ops)
    return ops.choose(replicated, whole[0], start), ops.choose(replicated, whole[1], stop)


def first_rank_writes(rank: T | int, ops: Arithmetic[T]) -> T:
    """Return 1 on rank 0, the one writer of what every rank holds, else 0."""
    return 1 - ops.smaller(rank, 1)


def replicated_written(length: T, cp_size: int, rank: T | int, ops: Arithmetic[T]) -> T:
    """Return 1 where the rank writes its rows of the request, 0 where rank 0 writes them for all ranks."""
    return ops.choose(is_replicated(length, cp_size, ops), first_rank_writes(rank, ops), 1)


def sharded_decode_bounds(
    length: T, ordinal: T | int, cp_size: int, rank: T | int, half: T | int, ops: Arithmetic[T]
) -> tuple[T, T]:
    """Return start and stop of a rank's halves of a decode that one rank holds: decodes are dealt to the ranks in turn.

    `ordinal` is the number of decodes before it in the batch.
    """
    start, stop = whole_bounds(length, half)
    return start, ops.choose(ordinal % cp_size == rank, stop, start)


def interleave_owner(token: T, block: int, cp_size: int, ops: Arithmetic[T]) -> T:
    """Return the rank of a token of the flattened batch."""
    return ops.divide(token, block) % cp_size


def interleave_count(length: T, block: int, cp_size: int, rank: T | int, ops: Arithmetic[T]) -> T:
    """Return how many of the first `length` tokens of the flattened batch are on the rank.

    For `length` = the index of a token of this rank it is the token's local place.
    """
    whole, rest = ops.divide(length, cp_size * block), length % (cp_size * block)
    return whole * block + clamp(rest - rank * block, 0, block, ops)


def interleave_token(place: T, block: int, cp_size: int, rank: T | int, ops: Arithmetic[T]) -> T:
    """Return the token of the flattened batch at a local place of the rank."""
    return (ops.divide(place, block) * cp_size + rank) * block + place % block


def real_tokens(start: T, stop: T, extend_len: T, ops: Arithmetic[T]) -> T:
    """Return how many tokens of a segment are real: engine padding follows the last real token of its request."""
    return clamp(extend_len - start, 0, stop - start, ops)


def padded_size(rows: T, row_alignment: int, ops: Arithmetic[T]) -> T:
    """Return the rows of every rank in the collective, from the rows of the fullest rank, engine padding included."""
    return round_up(rows, row_alignment, ops)


def gathered_index(rank: T | int, nnz_padded: T | int, place: T) -> T:
    """Return where a rank's row at a place of its shard stands after the collective."""
    return rank * nnz_padded + place


def row_of(first_row: T, token: T) -> T:
    """Return the row of a request's token, from the row of the request's first token."""
    return first_row + token


def position_of(prefix_len: T, token: T) -> T:
    """Return the position of a new token inside its request, prefix included."""
    return prefix_len + token


def causal_len_of(position: T) -> T:
    """Return how many keys a token at a position may see: itself and all before it."""
    return position + 1
