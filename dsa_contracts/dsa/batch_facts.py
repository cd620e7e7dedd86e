"""Checks of the host numbers that a batch is made of."""

from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.dsa.codes import BatchError

PADDINGS = ("zero", "ignored")
"""What padding rows of an engine may hold: zeros, or anything."""


def check_padding(padding: object) -> None:
    """Raise ArgumentError DSA602 unless `padding` is `zero` or `ignored`."""
    if padding not in PADDINGS:
        raise ArgumentError(f"padding is {padding!r}; it must be {' or '.join(PADDINGS)}")


def check_row_counts(nnz_local: int, shard: int | None, nnz: int, engine: int | None) -> None:
    """Raise BatchError DSA303 unless the rows of a shard, and those that an engine carries, hold the tokens of the batch."""
    if shard is not None and shard < nnz_local:
        raise BatchError(f"the shard has {shard} rows, this rank holds {nnz_local} tokens", code="DSA303")
    if engine is not None and engine < nnz:
        raise BatchError(f"the engine carries {engine} rows, the batch has {nnz} tokens", code="DSA303")


def check_ranks(cp_size: int, cp_rank: int) -> None:
    """Raise BatchError DSA302 unless `0 <= cp_rank < cp_size`."""
    if cp_size < 1:
        raise BatchError(f"cp_size is {cp_size}; it must be at least 1", code="DSA302")
    if not 0 <= cp_rank < cp_size:
        raise BatchError(f"cp_rank is {cp_rank}; it must be in 0..{cp_size - 1}", code="DSA302")


def check_lens(extend_lens: tuple[int, ...], prefix_lens: tuple[int, ...], padded_lens: tuple[int, ...]) -> None:
    """Raise BatchError DSA301 unless the lengths of a batch fit together.

    Args:
        extend_lens: new tokens, at least 0; a request of none stands in the batch and has no row.
        prefix_lens: cached tokens, at least 0; a negative one is an error and never clamped.
        padded_lens: tokens with engine padding, at least `extend_lens`.
    """
    counts = {"extend_lens": extend_lens, "prefix_lens": prefix_lens, "padded_lens": padded_lens}
    if len({len(lens) for lens in counts.values()}) != 1:
        sizes = ", ".join(f"{name} {len(lens)}" for name, lens in counts.items())
        raise BatchError(f"one entry a request is needed in each of {sizes}")
    for request, (extend, prefix, padded) in enumerate(zip(extend_lens, prefix_lens, padded_lens, strict=True)):
        if extend < 0:
            raise BatchError(f"request {request}: extend_lens is {extend}; it must be at least 0")
        if prefix < 0:
            raise BatchError(
                f"request {request}: prefix_lens is {prefix}; it must be at least 0",
                facts=[("because", "prefix = seq_len - extend_len, both unpadded; a padded count makes it too small")],
            )
        if padded < extend:
            raise BatchError(f"request {request}: padded_lens {padded} is below extend_lens {extend}")
