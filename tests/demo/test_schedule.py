from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsa_contracts.core.errors import ArgumentError
from dsa_cp.demo.schedule import PrefillBatch, PrefillChunk, Schedule, build_schedule
from dsa_cp.demo.trace import BLOCK_TOKENS, TraceRequest, default_trace, num_blocks

PAGE_SIZES = [1, 2, 64, 512]


def request(input_length: int, *hash_ids: int, unique_from: int = 1000) -> TraceRequest:
    """Return a request whose ids are those given, then unique ones."""
    missing = num_blocks(input_length) - len(hash_ids)
    return TraceRequest(0, input_length, 1, hash_ids + tuple(range(unique_from, unique_from + missing)))


def lens(schedule: Schedule) -> list[list[tuple[int, int, int]]]:
    """Return (request, prefix_len, extend_len) of each chunk of each batch."""
    return [[(chunk.request, chunk.prefix_len, chunk.extend_len) for chunk in batch.chunks] for batch in schedule.batches]


def written_slots(schedule: Schedule) -> list[int]:
    return [slot for batch in schedule.batches for slot in batch.out_cache_loc(schedule.page_size)]


def test_requests_share_a_batch_and_the_last_one_is_cut() -> None:
    schedule = build_schedule([request(4), request(9), request(3)], chunk_tokens=10, page_size=1)
    assert lens(schedule) == [[(0, 0, 4), (1, 0, 6)], [(1, 6, 3), (2, 0, 3)]]


def test_one_request_spans_several_batches() -> None:
    schedule = build_schedule([request(25), request(1)], chunk_tokens=10, page_size=1)
    assert lens(schedule) == [[(0, 0, 10)], [(0, 10, 10)], [(0, 20, 5), (1, 0, 1)]]


def test_a_full_batch_does_not_open_the_next_request() -> None:
    schedule = build_schedule([request(10), request(2)], chunk_tokens=10, page_size=1)
    assert lens(schedule) == [[(0, 0, 10)], [(1, 0, 2)]]


def test_a_batch_lists_its_lengths() -> None:
    schedule = build_schedule([request(4), request(9), request(3)], chunk_tokens=10, page_size=1)
    batch = schedule.batches[1]
    assert (batch.index, batch.prefix_lens, batch.extend_lens, batch.nnz) == (1, (6, 0), (3, 3), 6)


def test_slots_are_those_of_the_new_tokens_in_sequence_order() -> None:
    batch = PrefillBatch(0, (PrefillChunk(0, 3, 3, (5, 2)), PrefillChunk(1, 0, 2, (9,))))
    assert batch.out_cache_loc(page_size=4) == (23, 8, 9, 36, 37)


def test_a_chunk_that_ends_inside_a_page_is_continued_in_that_page() -> None:
    schedule = build_schedule([request(20)], chunk_tokens=10, page_size=4)
    first, second = (batch.chunks[0] for batch in schedule.batches)
    assert (len(first.pages), len(second.pages)) == (3, 5)
    assert second.pages[:3] == first.pages
    assert second.slots(4)[:2] == (first.pages[2] * 4 + 2, first.pages[2] * 4 + 3)


def test_page_zero_is_reserved_and_every_other_page_is_used() -> None:
    schedule = build_schedule([request(20), request(3)], chunk_tokens=10, page_size=4)
    pages = {page for batch in schedule.batches for chunk in batch.chunks for page in chunk.pages}
    assert schedule.num_pages == 7
    assert pages == {1, 2, 3, 4, 5, 6}


def test_pages_are_handed_out_in_the_shuffled_order_of_the_seed() -> None:
    chunk = build_schedule([request(8)], page_size=1).batches[0].chunks[0]
    assert chunk.pages == (5, 2, 6, 3, 1, 4, 8, 7)
    assert build_schedule([request(8)], page_size=1).batches[0].chunks[0] == chunk
    assert build_schedule([request(8)], page_size=1, seed=1).batches[0].chunks[0].pages != chunk.pages


def test_blocks_of_an_earlier_batch_are_hit_and_share_its_pages() -> None:
    requests = [request(1024, 7, 8), request(1030, 7, 8, 9)]
    schedule = build_schedule(requests, chunk_tokens=1024)
    assert lens(schedule) == [[(0, 0, 1024)], [(1, 1024, 6)]]
    assert schedule.cached_tokens == 1024
    assert schedule.num_pages == 1 + 16 + 1
    first, second = (batch.chunks[0] for batch in schedule.batches)
    assert second.pages[:16] == first.pages


def test_blocks_of_the_same_batch_are_not_hit() -> None:
    schedule = build_schedule([request(1024, 7, 8), request(1030, 7, 8, 9)], chunk_tokens=4096)
    assert lens(schedule) == [[(0, 0, 1024), (1, 0, 1030)]]
    assert schedule.cached_tokens == 0


def test_a_block_can_be_hit_only_after_the_batch_of_its_last_token() -> None:
    requests = [request(1024, 7, 8), request(1030, 7, 8, 9)]
    schedule = build_schedule(requests, chunk_tokens=1023)
    assert lens(schedule) == [[(0, 0, 1023)], [(0, 1023, 1), (1, 512, 518)]]


def test_a_hit_never_covers_the_last_token() -> None:
    schedule = build_schedule([request(1024, 7, 8), request(1024, 7, 8)], chunk_tokens=1024)
    assert lens(schedule) == [[(0, 0, 1024)], [(1, 512, 512)]]


def test_a_block_is_hit_only_if_all_blocks_before_it_are() -> None:
    schedule = build_schedule([request(1024, 7, 8), request(1025, 6, 8, 9)], chunk_tokens=1024)
    assert schedule.cached_tokens == 0


def test_a_partial_block_is_never_hit() -> None:
    schedule = build_schedule([request(700, 7, 8), request(1025, 7, 8, 9)], chunk_tokens=700)
    assert lens(schedule) == [[(0, 0, 700)], [(1, 512, 513)]]


def test_a_block_computed_twice_is_shared_from_its_first_request() -> None:
    requests = [request(513, 7, 8), request(513, 7, 9), request(514, 7, 10)]
    schedule = build_schedule(requests, chunk_tokens=1026)
    first, second = schedule.batches[0].chunks
    hit = schedule.batches[1].chunks[0]
    assert hit.pages[:8] == first.pages[:8]
    assert not set(hit.pages) & set(second.pages)


def test_blocks_computed_after_a_hit_can_be_hit_themselves() -> None:
    requests = [request(512, 7), request(1024, 7, 8), request(1536, 7, 8, 9)]
    schedule = build_schedule(requests, chunk_tokens=512)
    assert lens(schedule) == [[(0, 0, 512)], [(1, 512, 512)], [(2, 1024, 512)]]
    assert schedule.cached_tokens == 512 + 1024


def test_scheduling_stops_after_max_batches() -> None:
    schedule = build_schedule([request(25)], chunk_tokens=10, page_size=1, max_batches=2)
    assert lens(schedule) == [[(0, 0, 10)], [(0, 10, 10)]]
    assert schedule.num_pages == 21


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"chunk_tokens": 0}, "chunk_tokens is 0, expected at least 1"),
        ({"chunk_tokens": -8}, "chunk_tokens is -8, expected at least 1"),
        ({"page_size": 0}, "page_size is 0, expected a divisor of 512, as 1 or 64"),
        ({"page_size": -64}, "page_size is -64, expected a divisor of 512, as 1 or 64"),
        ({"page_size": 48}, "page_size is 48, expected a divisor of 512, as 1 or 64"),
        ({"page_size": 1024}, "page_size is 1024, expected a divisor of 512, as 1 or 64"),
        ({"max_batches": 0}, "max_batches is 0, expected at least 1"),
    ],
)
def test_an_argument_that_is_not_legal_is_named(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        build_schedule([request(5)], **arguments)
    assert str(caught.value) == f"ArgumentError DSA602: {message}"


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([], "requests is empty, expected at least one"),
        ([request(5), TraceRequest(0, 0, 1, ())], "requests[1]: input_length is 0, expected at least 1"),
        ([TraceRequest(0, 513, 1, (4,))], "requests[0]: has 1 hash_ids, expected 2, one per 512 tokens"),
    ],
)
def test_requests_that_do_not_fit_together_are_named(requests: list[TraceRequest], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        build_schedule(requests)
    assert str(caught.value) == f"ArgumentError DSA602: {message}"


def test_the_default_trace_mixes_shared_batches_cut_requests_and_hits() -> None:
    schedule = build_schedule(default_trace())
    assert lens(schedule)[:3] == [
        [(0, 0, 6758), (1, 0, 1434)],
        [(1, 1434, 5888), (2, 512, 2304)],
        [(2, 2816, 4420), (3, 512, 1778), (4, 512, 1994)],
    ]
    assert len(schedule.batches) == 92
    assert all(batch.nnz == 8192 for batch in schedule.batches[:-1])
    assert max(len(batch.chunks) for batch in schedule.batches) == 4
    assert schedule.cached_tokens == 31744
    assert sum(batch.nnz for batch in schedule.batches) + schedule.cached_tokens == 779989
    assert schedule.num_pages == 11726


@st.composite
def workloads(draw: st.DrawFn) -> list[TraceRequest]:
    """Requests of up to four blocks over two ids a block, so that prefixes are shared often."""
    sizes = draw(st.lists(st.integers(1, 4 * BLOCK_TOKENS), min_size=1, max_size=6))
    ids = st.integers(0, 1)
    return [request(size, *draw(st.tuples(*[ids] * num_blocks(size)))) for size in sizes]


@given(workloads(), st.integers(100, 3000), st.sampled_from(PAGE_SIZES), st.integers(0, 3))
def test_every_schedule_keeps_its_promises(
    requests: list[TraceRequest], chunk_tokens: int, page_size: int, seed: int
) -> None:
    schedule = build_schedule(requests, chunk_tokens=chunk_tokens, page_size=page_size, seed=seed)
    done: dict[int, int] = {}
    cached = 0
    for index, batch in enumerate(schedule.batches):
        assert batch.index == index
        assert 1 <= batch.nnz <= chunk_tokens
        assert len(batch.out_cache_loc(page_size)) == batch.nnz
        assert batch.nnz == chunk_tokens or index == len(schedule.batches) - 1
        for chunk in batch.chunks:
            if chunk.request not in done:
                assert chunk.prefix_len % BLOCK_TOKENS == 0
                cached += chunk.prefix_len
            assert chunk.prefix_len == done.get(chunk.request, chunk.prefix_len)
            assert len(chunk.pages) == -(-(chunk.prefix_len + chunk.extend_len) // page_size)
            done[chunk.request] = chunk.prefix_len + chunk.extend_len
    assert list(done.items()) == [(index, request.input_length) for index, request in enumerate(requests)]
    assert cached == schedule.cached_tokens


@given(workloads(), st.integers(100, 3000), st.sampled_from(PAGE_SIZES), st.integers(0, 3))
def test_no_slot_is_written_twice_and_every_slot_is_written_before_it_is_read(
    requests: list[TraceRequest], chunk_tokens: int, page_size: int, seed: int
) -> None:
    schedule = build_schedule(requests, chunk_tokens=chunk_tokens, page_size=page_size, seed=seed)
    assert max(Counter(written_slots(schedule)).values()) == 1
    assert all(page_size <= slot < schedule.num_pages * page_size for slot in written_slots(schedule))
    ready: set[int] = set()
    content: dict[int, tuple[tuple[int, ...], int]] = {}
    for batch in schedule.batches:
        for chunk in batch.chunks:
            prefix = PrefillChunk(chunk.request, 0, chunk.prefix_len, chunk.pages).slots(page_size)
            assert ready.issuperset(prefix)
            hash_ids = requests[chunk.request].hash_ids
            for token, slot in enumerate((*prefix, *chunk.slots(page_size))):
                chain = hash_ids[: token // BLOCK_TOKENS + 1]
                assert content.setdefault(slot, (chain, token)) == (chain, token)
        ready.update(batch.out_cache_loc(page_size))
