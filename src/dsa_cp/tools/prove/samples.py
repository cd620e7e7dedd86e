"""Batches on which the code of a layout is compared with its formulas: small ones by size, then random ones."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeVar

V = TypeVar("V")

_RANDOM = 24
_SHORT = (1, 2, 3)


@dataclass(frozen=True)
class Sample:
    """Lengths of a batch; see `CpBatch`. `decodes` has a flag a request."""

    extend: tuple[int, ...]
    prefix: tuple[int, ...]
    padded: tuple[int, ...]
    row_alignment: int
    decodes: tuple[bool, ...]

    @property
    def order(self) -> tuple[int, int, int, int, int]:
        """What a smaller batch is smaller in: alignment, tokens, padding, requests, decodes."""
        padding = sum(self.padded) - sum(self.extend)
        tokens = sum(self.padded) + sum(self.prefix)
        return self.row_alignment, tokens, padding, len(self.extend), sum(self.decodes)

    def smaller(self) -> Iterator["Sample"]:
        """Yield batches that are smaller in one respect, the largest steps first."""
        count = len(self.extend)
        for request in range(count) if count > 1 else ():
            kept = [other for other in range(count) if other != request]
            lens = [tuple(each[other] for other in kept) for each in (self.extend, self.prefix, self.padded)]
            yield Sample(lens[0], lens[1], lens[2], self.row_alignment, tuple(self.decodes[other] for other in kept))
        if self.row_alignment > 1:
            yield replace(self, row_alignment=1)
        for request in range(count):
            extend, padding = self.extend[request], self.padded[request] - self.extend[request]
            yield from (self._with(request, extend=each) for each in _below(extend, 1))
            yield from (self._with(request, padding=each) for each in _below(padding, 0))
            yield from (self._with(request, prefix=each) for each in _below(self.prefix[request], 0))
            if self.decodes[request]:
                yield replace(self, decodes=_changed(self.decodes, request, False))

    def _with(
        self, request: int, extend: int | None = None, padding: int | None = None, prefix: int | None = None
    ) -> "Sample":
        """Return the batch with other lengths of one request."""
        new = self.extend[request] if extend is None else extend
        more = self.padded[request] - self.extend[request] if padding is None else padding
        cached = self.prefix[request] if prefix is None else prefix
        return replace(
            self,
            extend=_changed(self.extend, request, new),
            padded=_changed(self.padded, request, new + more),
            prefix=_changed(self.prefix, request, cached),
        )


def _changed(values: tuple[V, ...], index: int, value: V) -> tuple[V, ...]:
    """Return values of which one is another."""
    return (*values[:index], value, *values[index + 1 :])


def _below(value: int, least: int) -> list[int]:
    """Return values to try instead: the least, the middle, one less."""
    return sorted({least, (value + least) // 2, value - 1} & set(range(least, value)))


def samples(cp_size: int, *, tells_decodes: bool) -> list[Sample]:
    """Return the batches for a group size, in order of size; the same each time.

    Args:
        cp_size: ranks.
        tells_decodes: whether the layout puts decodes elsewhere; without, no request is one.
    """
    draw = random.Random(cp_size)
    found = [_plain((length,)) for length in range(1, 2 * cp_size + 3)]
    found += [
        _plain(lens) for lens in (*product(_SHORT, repeat=2), (1, 1, 1), (2, 1, 3), (2 * cp_size + 1, 1), (1, 4 * cp_size))
    ]
    found += [replace(each, padded=tuple(length + 2 for length in each.padded)) for each in found[::3]]
    found += [_random(draw, cp_size) for _ in range(_RANDOM)]
    if tells_decodes:
        few = [each for each in found if len(each.extend) < 3 and sum(each.extend) < 8]
        found += [
            replace(each, decodes=flags)
            for each in few
            for flags in product((False, True), repeat=len(each.extend))
            if any(flags)
        ]
        mixed = [_random(draw, cp_size) for _ in range(_RANDOM)]
        found += [replace(each, decodes=tuple(draw.random() < 0.5 for _ in each.extend)) for each in mixed]
    return sorted(found, key=lambda each: each.order)


def _plain(extend: tuple[int, ...]) -> Sample:
    """Return a batch without prefixes, padding and decodes."""
    return Sample(extend, (0,) * len(extend), extend, 1, (False,) * len(extend))


def _random(draw: random.Random, cp_size: int) -> Sample:
    """Return a batch of up to five requests, some short for the group, some long, with prefixes and engine padding."""
    count = draw.randint(1, 5)
    extend = tuple(draw.randint(1, draw.choice((3, 4 * cp_size, 4 * cp_size, 300))) for _ in range(count))
    prefix = tuple(draw.choice((0, draw.randint(1, 500))) for _ in range(count))
    padded = tuple(length + draw.choice((0, 0, 1, 5)) for length in extend)
    return Sample(extend, prefix, padded, draw.choice((1, 1, 8)), (False,) * count)
