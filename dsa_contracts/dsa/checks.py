"""Checks of what a caller gives to the layouts and to `build_batches`."""

from collections.abc import Sequence

import torch
from torch import Tensor

from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.core.tensors import describe_tensor
from dsa_contracts.dsa.batch_facts import check_lens, check_ranks
from dsa_contracts.dsa.codes import BatchError
from dsa_contracts.dsa.formulas import INTS, ceil_div
from dsa_contracts.dsa.layout import Layout

MAX_CAUSAL_LEN = torch.iinfo(torch.int32).max


def _is_int(value: object) -> bool:
    """Whether a value is an int and no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_group(cp_size: object, cp_rank: object = 0) -> None:
    """Raise BatchError DSA302 unless both are ints and `0 <= cp_rank < cp_size`."""
    for name, value in (("cp_size", cp_size), ("cp_rank", cp_rank)):
        if not _is_int(value):
            raise BatchError(f"{name} is {value!r}; it must be an int", code="DSA302")
    check_ranks(int(cp_size), int(cp_rank))  # type: ignore[call-overload]


def checked_lens(name: str, lens: object, *, least: int) -> tuple[int, ...]:
    """Return lengths as a tuple.

    Args:
        name: the argument that they came in, for messages.
        lens: a list, tuple or other sequence of ints, one a request. Tensors and bools are refused: to read a tensor
            could mean to wait for its device.
        least: the smallest legal length.

    Raises:
        BatchError: DSA301, naming the request.
    """
    if not isinstance(lens, Sequence) or isinstance(lens, (str, bytes)):
        raise BatchError(f"{name} is a {type(lens).__name__}; it must be a sequence of ints")
    if not lens:
        raise BatchError("a batch needs at least one request")
    for request, length in enumerate(lens):
        if not _is_int(length):
            raise BatchError(f"request {request}: {name} is {length!r}; it must be an int")
        if length < least:
            raise BatchError(f"request {request}: {name} is {length}; it must be at least {least}")
    return tuple(lens)


def checked_batch_lens(
    extend_lens: object, prefix_lens: object, padded_lens: object, seq_lens: object = None
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return extend, prefix and padded lengths; None stands for no prefixes and for no padding.

    Where `seq_lens` are given they must be prefix + extend exactly: a prefix that was clamped shows in nothing else.

    Raises:
        BatchError: DSA301, lengths are no ints, do not fit together, or give causal lens above int32.
    """
    extend = checked_lens("extend_lens", extend_lens, least=0)
    prefix = (0,) * len(extend) if prefix_lens is None else checked_lens("prefix_lens", prefix_lens, least=0)
    padded = extend if padded_lens is None else checked_lens("padded_lens", padded_lens, least=0)
    check_lens(extend, prefix, padded)
    if seq_lens is not None:
        _check_sums(checked_lens("seq_lens", seq_lens, least=0), prefix, extend)
    for request, (cached, new) in enumerate(zip(prefix, padded, strict=True)):
        if cached + new > MAX_CAUSAL_LEN:
            raise BatchError(
                f"request {request}: {cached} cached and {new} new tokens are more than {MAX_CAUSAL_LEN}",
                facts=[("because", "causal_lens are int32")],
            )
    return extend, prefix, padded


def decode_flags(decodes: Sequence[bool], num_requests: int) -> list[bool]:
    """Return whether each request is a decode; raises BatchError DSA301 unless there is one bool a request, or no bool."""
    flags = list(decodes) or [False] * num_requests
    if len(flags) != num_requests:
        raise BatchError(f"decodes has {len(flags)} flags, the batch has {num_requests} requests")
    for request, flag in enumerate(flags):
        if not isinstance(flag, bool):
            raise BatchError(f"request {request}: decodes is {flag!r}; it must be True or False")
    return flags


def _check_sums(seq_lens: tuple[int, ...], prefix: tuple[int, ...], extend: tuple[int, ...]) -> None:
    """Raise BatchError DSA301 unless each sequence is its prefix and its extend, both without padding."""
    if len(seq_lens) != len(extend):
        raise BatchError(f"one entry a request is needed in each of extend_lens {len(extend)}, seq_lens {len(seq_lens)}")
    for request, (total, cached, new) in enumerate(zip(seq_lens, prefix, extend, strict=True)):
        if total != cached + new:
            raise BatchError(
                f"request {request}: seq_lens is {total}, prefix_lens {cached} + extend_lens {new} is {cached + new}",
                facts=[
                    ("because", "one of them was padded or clamped"),
                    ("try", "prefix = seq_len - extend_len, both without padding"),
                ],
            )


def check_options(layout: object, row_alignment: object, page_size: object, plan: object) -> None:
    """Raise ArgumentError DSA602 unless each option has its type and the counts are at least 1."""
    if not isinstance(layout, Layout):
        raise ArgumentError(f"layout is {layout!r}; it must be a Layout, as layout_by_name gives it")
    for name, value in (("row_alignment", row_alignment), ("page_size", page_size)):
        if not _is_int(value):
            raise ArgumentError(f"{name} is {value!r}; it must be an int")
        if value < 1:  # type: ignore[operator]
            raise ArgumentError(f"{name} is {value}; it must be at least 1")
    if not isinstance(plan, str):
        raise ArgumentError(f"plan is {plan!r}; it must be a plan's name")


def check_slots(out_cache_loc: Tensor | None, nnz: int, *others: int) -> None:
    """Raise BatchError DSA301 unless `out_cache_loc` is None or int64 with one entry a row: `nnz`, or one of `others`."""
    if out_cache_loc is None:
        return
    _check_kind("out_cache_loc", out_cache_loc, torch.int64, 1)
    if others and len(out_cache_loc) not in (nnz, *others):
        raise BatchError(f"out_cache_loc has {len(out_cache_loc)} slots, not {' or '.join(map(str, sorted({nnz, *others})))}")
    if not others and len(out_cache_loc) != nnz:
        raise BatchError(
            f"out_cache_loc has {len(out_cache_loc)} slots, the batch has {nnz} rows",
            facts=[("because", "it holds one slot for each new token, none for engine padding")],
        )


def check_pages(page_table: Tensor | None, seq_lens: Sequence[int], page_size: int) -> None:
    """Raise BatchError DSA301 unless `page_table` is None or int32 and holds the pages of every request."""
    if page_table is None:
        return
    _check_kind("page_table", page_table, torch.int32, 2)
    rows, pages = page_table.shape
    if rows != len(seq_lens):
        raise BatchError(f"page_table has {rows} rows, the batch has {len(seq_lens)} requests")
    for request, seq_len in enumerate(seq_lens):
        needed = ceil_div(seq_len, page_size, INTS)
        if needed > pages:
            raise BatchError(
                f"request {request}: {seq_len} tokens need {needed} pages of {page_size}, page_table has {pages}"
            )


def _check_kind(name: str, tensor: object, dtype: torch.dtype, dims: int) -> None:
    """Raise BatchError DSA301 unless `tensor` is a tensor of the dtype and the number of dims."""
    if not isinstance(tensor, Tensor) or tensor.dtype != dtype or tensor.dim() != dims:
        kind = str(dtype).removeprefix("torch.")
        raise BatchError(f"{name} must be {kind} with {dims} dim(s), got {describe_tensor(tensor)}")


def device_of(device: object, *tensors: Tensor | None) -> torch.device:
    """Return the device named, else that of the first tensor given, else the CPU; raises ArgumentError DSA602."""
    if device is None:
        return next((tensor.device for tensor in tensors if tensor is not None), torch.device("cpu"))
    try:
        return torch.empty(0, device=device).device  # type: ignore[call-overload, no-any-return]
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ArgumentError(f"device {str(device)!r} cannot be used", facts=[("because", reason)]) from None
