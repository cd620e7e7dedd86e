"""Prefill batches from requests: chunked prefill, first come first served, with a prefix cache over 512-token blocks.

A batch is filled with requests in order up to `chunk_tokens`; the request that does not fit is cut, and its remainder
opens the next batch. So several requests share a batch, and one request spans several.

Provenance: the order and the cut are those of PrefillAdder, sglang/srt/managers/schedule_policy.py@0.5.23, with these
differences. A batch is charged for its tokens and a chunk may end inside a page, as in sglang's exact chunk fill; its
default charges whole pages and ends a chunk at one. Hits are found on the trace's hash ids, not on tokens. Nothing is
decoded or evicted, so the pool only grows.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from dsa_contracts.core.errors import ArgumentError
from dsa_cp.demo.trace import BLOCK_TOKENS, TraceRequest, num_blocks


@dataclass(frozen=True)
class PrefillChunk:
    """Consecutive tokens of one request that are computed in one batch.

    Attributes:
        request: index of the request in the trace.
        prefix_len: tokens of the request whose KV rows are in the pool already, computed or hit.
        extend_len: tokens computed now, at least 1.
        pages: pool pages of tokens 0 to prefix_len + extend_len - 1, in order; page p holds the slots p * page_size to
            p * page_size + page_size - 1.
    """

    request: int
    prefix_len: int
    extend_len: int
    pages: tuple[int, ...]

    def slots(self, page_size: int) -> tuple[int, ...]:
        """Return the pool slot of each token computed now, in order."""
        tokens = range(self.prefix_len, self.prefix_len + self.extend_len)
        return tuple(self.pages[token // page_size] * page_size + token % page_size for token in tokens)


@dataclass(frozen=True)
class PrefillBatch:
    """The chunks that one forward pass computes, in sequence order."""

    index: int
    chunks: tuple[PrefillChunk, ...]

    @property
    def extend_lens(self) -> tuple[int, ...]:
        """Tokens computed now, per chunk."""
        return tuple(chunk.extend_len for chunk in self.chunks)

    @property
    def prefix_lens(self) -> tuple[int, ...]:
        """Tokens already in the pool, per chunk."""
        return tuple(chunk.prefix_len for chunk in self.chunks)

    @property
    def nnz(self) -> int:
        """Tokens computed now, over all chunks."""
        return sum(self.extend_lens)

    def out_cache_loc(self, page_size: int) -> tuple[int, ...]:
        """Return the pool slot of each token computed now, chunk by chunk: `nnz` entries in sequence order."""
        return tuple(slot for chunk in self.chunks for slot in chunk.slots(page_size))


@dataclass(frozen=True)
class Schedule:
    """All batches, and the KV pool that holds them.

    Attributes:
        batches: in the order in which they must run.
        num_pages: pages of the pool, page 0 included, which is reserved for padding and in no chunk.
        page_size: slots of a page.
        cached_tokens: tokens that were not computed, since their blocks were hit.
    """

    batches: tuple[PrefillBatch, ...]
    num_pages: int
    page_size: int
    cached_tokens: int


def build_schedule(
    requests: Sequence[TraceRequest],
    *,
    chunk_tokens: int = 8192,
    page_size: int = 64,
    max_batches: int | None = None,
    seed: int = 0,
) -> Schedule:
    """Return the prefill batches of the requests, taken in the order given.

    A block is hit if its hash id and all ids before it are those of blocks that an earlier batch completed. Only full
    blocks are hit, and never a request's last token, so every request computes at least one. A hit shares the pages of
    the request that computed the block first; no slot is written twice.

    Args:
        requests: at least one.
        chunk_tokens: most tokens of a batch.
        page_size: slots of a page, a divisor of 512.
        max_batches: stop after this many batches.
        seed: of the shuffled order in which pages are handed out: with sorted slots a wrong permutation could pass.

    Returns:
        A schedule of at least one batch.

    Raises:
        ArgumentError: DSA602, as the message says.
    """
    _check(requests, chunk_tokens, page_size, max_batches)
    scheduler = _Scheduler(requests, chunk_tokens, page_size)
    batches: list[PrefillBatch] = []
    while scheduler.has_work and len(batches) != max_batches:
        batches.append(PrefillBatch(len(batches), scheduler.next_chunks()))
    # Pages are counted up while scheduling and renamed at the end, when it is known how many there are.
    names = list(range(1, scheduler.used_pages + 1))
    random.Random(seed).shuffle(names)
    renamed = tuple(_renamed(batch, names) for batch in batches)
    return Schedule(renamed, len(names) + 1, page_size, scheduler.cached_tokens)


def _renamed(batch: PrefillBatch, names: Sequence[int]) -> PrefillBatch:
    chunks = (
        PrefillChunk(chunk.request, chunk.prefix_len, chunk.extend_len, tuple(names[page] for page in chunk.pages))
        for chunk in batch.chunks
    )
    return PrefillBatch(batch.index, tuple(chunks))


class _PrefixCache:
    """Completed blocks by the chain of hash ids that leads to them."""

    def __init__(self) -> None:
        self._children: dict[tuple[int, int], int] = {}
        self._pages: list[Sequence[int]] = [()]  # by node; node 0 is the empty prefix

    def match(self, hash_ids: Sequence[int]) -> list[Sequence[int]]:
        """Return the pages of each leading block that is known."""
        found: list[Sequence[int]] = []
        node = 0
        for hash_id in hash_ids:
            if (node, hash_id) not in self._children:
                break
            node = self._children[node, hash_id]
            found.append(self._pages[node])
        return found

    def insert(self, hash_ids: Sequence[int], pages: Sequence[int], pages_per_block: int) -> None:
        """Add the blocks that are not known yet; the pages of a known block stay those of its first request."""
        node = 0
        for block, hash_id in enumerate(hash_ids):
            child = self._children.setdefault((node, hash_id), len(self._pages))
            if child == len(self._pages):
                self._pages.append(pages[block * pages_per_block : (block + 1) * pages_per_block])
            node = child


@dataclass
class _Progress:
    """A request that has been started: `done` tokens are in the pool, in `pages`."""

    index: int
    request: TraceRequest
    done: int
    pages: list[int] = field(default_factory=list)

    @property
    def left(self) -> int:
        return self.request.input_length - self.done


class _Scheduler:
    def __init__(self, requests: Sequence[TraceRequest], chunk_tokens: int, page_size: int) -> None:
        self._requests = requests
        self._chunk_tokens = chunk_tokens
        self._page_size = page_size
        self._cache = _PrefixCache()
        self._started = 0
        self._cut: _Progress | None = None
        self.used_pages = 0
        self.cached_tokens = 0

    @property
    def has_work(self) -> bool:
        return self._cut is not None or self._started < len(self._requests)

    def next_chunks(self) -> tuple[PrefillChunk, ...]:
        """Return the chunks of the next batch, their pages counted from 0."""
        room = self._chunk_tokens
        chunks: list[PrefillChunk] = []
        touched: list[_Progress] = []
        while room > 0 and self.has_work:
            progress = self._cut or self._start()
            chunks.append(self._extend(progress, min(room, progress.left)))
            touched.append(progress)
            room -= chunks[-1].extend_len
            self._cut = progress if progress.left else None
        for progress in touched:
            full_blocks = progress.done // BLOCK_TOKENS
            hash_ids = progress.request.hash_ids[:full_blocks]
            self._cache.insert(hash_ids, progress.pages, BLOCK_TOKENS // self._page_size)
        return tuple(chunks)

    def _start(self) -> _Progress:
        index, self._started = self._started, self._started + 1
        request = self._requests[index]
        hits = self._cache.match(request.hash_ids[: (request.input_length - 1) // BLOCK_TOKENS])
        self.cached_tokens += len(hits) * BLOCK_TOKENS
        return _Progress(index, request, len(hits) * BLOCK_TOKENS, [page for pages in hits for page in pages])

    def _extend(self, progress: _Progress, extend_len: int) -> PrefillChunk:
        prefix_len = progress.done
        progress.done += extend_len
        new_pages = -(-progress.done // self._page_size) - len(progress.pages)
        progress.pages.extend(range(self.used_pages, self.used_pages + new_pages))
        self.used_pages += new_pages
        return PrefillChunk(progress.index, prefix_len, extend_len, tuple(progress.pages))


def _check(requests: Sequence[TraceRequest], chunk_tokens: int, page_size: int, max_batches: int | None) -> None:
    if not requests:
        raise ArgumentError("requests is empty, expected at least one")
    if chunk_tokens < 1:
        raise ArgumentError(f"chunk_tokens is {chunk_tokens}, expected at least 1")
    if page_size < 1 or BLOCK_TOKENS % page_size:
        raise ArgumentError(f"page_size is {page_size}, expected a divisor of {BLOCK_TOKENS}, as 1 or 64")
    if max_batches is not None and max_batches < 1:
        raise ArgumentError(f"max_batches is {max_batches}, expected at least 1")
    for index, request in enumerate(requests):
        if request.input_length < 1:
            raise ArgumentError(f"requests[{index}]: input_length is {request.input_length}, expected at least 1")
        found, wanted = len(request.hash_ids), num_blocks(request.input_length)
        if found != wanted:
            raise ArgumentError(f"requests[{index}]: has {found} hash_ids, expected {wanted}, one per {BLOCK_TOKENS} tokens")
