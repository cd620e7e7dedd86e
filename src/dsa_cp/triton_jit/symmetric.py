# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# ruff: noqa: N803 - constants of a kernel are written in capitals, as Triton's own are
"""Triton kernels that move packed rows between the GPUs of one host, straight into cache slots; imported when asked for.

A row is moved in units of 16 bytes, or of 4 where its width is no multiple of 16. The units of many rows are one flat
range, so that every lane is busy and the side that is contiguous is read or written in whole lines.

Ranks meet inside the kernel: program p of each rank writes its count of launches into a cell of program p of every peer,
and waits until its own cells have reached that count. Counts only grow, so that nothing is reset, no program waits for
another one of its own GPU, and a launch can be replayed from a CUDA graph. All ranks must launch the same grids in the
same order.
"""

import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]

INTS = ("loc_start", "row_units", "index_units", "rows", "me", "flags_at", "rows_at", "index_at")
"""Plain numbers: one compiled kernel serves all of their values."""


@triton.jit
def _meet(bases, flags_at, counts, me, WORLD: tl.constexpr):
    """Return once this program has run on every rank as often as here; what peers wrote before it is visible then."""
    tl.debug_barrier()
    program = tl.program_id(0)
    count = tl.load(counts + program) + 1
    for step in tl.static_range(1, WORLD):
        peer = (me + step) % WORLD
        cells = (tl.load(bases + peer) + flags_at).to(tl.pointer_type(tl.int32))
        tl.atomic_xchg(cells + program * WORLD + me, count, sem="release", scope="sys")
    own = (tl.load(bases + me) + flags_at).to(tl.pointer_type(tl.int32))
    for step in tl.static_range(1, WORLD):
        peer = (me + step) % WORLD
        seen = tl.atomic_add(own + program * WORLD + peer, 0, sem="acquire", scope="sys")
        while seen < count:
            seen = tl.atomic_add(own + program * WORLD + peer, 0, sem="acquire", scope="sys")
    tl.debug_barrier()
    tl.store(counts + program, count)


@triton.jit
def _words(tensor, LANES: tl.constexpr):
    """Return a pointer to bytes as one to 4-byte words, aligned to `LANES` of them."""
    return tl.multiple_of(tensor.to(tl.pointer_type(tl.int32)), 4 * LANES)


@triton.jit
def _push(
    source, loc, targets, units, me, WIDTH: tl.constexpr, LANES: tl.constexpr, WORLD: tl.constexpr, BLOCK: tl.constexpr
):
    """Write this rank's rows, `units` of LANES words, into their slots of every rank's pool, the next rank's first."""
    lanes = tl.arange(0, LANES)
    for block in range(tl.program_id(0), tl.cdiv(units, BLOCK), tl.num_programs(0)):
        unit = block * BLOCK + tl.arange(0, BLOCK)
        slot = tl.load(loc + unit // WIDTH, mask=unit < units, other=-1)
        words = tl.load(source + (unit * LANES)[:, None] + lanes[None, :], mask=(slot >= 0)[:, None])
        at = (slot * WIDTH + unit % WIDTH) * LANES
        for step in tl.static_range(WORLD):
            pool = tl.multiple_of(tl.load(targets + (me + 1 + step) % WORLD).to(tl.pointer_type(tl.int32)), 16)
            tl.store(pool + at[:, None] + lanes[None, :], words, mask=(slot >= 0)[:, None])


@triton.jit(do_not_specialize=INTS)
def push_rows(
    bases,
    flags_at,
    counts,
    me,
    loc,
    loc_start,
    kv,
    pools,
    row_units,
    index_kv,
    index_pools,
    index_units,
    WIDTH: tl.constexpr,
    LANES: tl.constexpr,
    INDEX_WIDTH: tl.constexpr,
    INDEX_LANES: tl.constexpr,
    WORLD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """This rank's rows stand in every rank's pool, and every peer's rows in this rank's."""
    _push(_words(kv, LANES), loc + loc_start, pools, row_units, me, WIDTH, LANES, WORLD, BLOCK)
    if INDEX_WIDTH > 0:
        _push(
            _words(index_kv, INDEX_LANES),
            loc + loc_start,
            index_pools,
            index_units,
            me,
            INDEX_WIDTH,
            INDEX_LANES,
            WORLD,
            BLOCK,
        )
    _meet(bases, flags_at, counts, me, WORLD)


@triton.jit
def _pull(
    bases, rows_at, loc, pool, rows, me, WIDTH: tl.constexpr, LANES: tl.constexpr, WORLD: tl.constexpr, BLOCK: tl.constexpr
):
    """Write the rows of all ranks, which stand at `rows_at` of each rank's buffer, into their slots of this rank's pool."""
    lanes = tl.arange(0, LANES)
    ranks = (tl.arange(0, WORLD) + me + 1) % WORLD
    source = tl.multiple_of((tl.load(bases + ranks) + rows_at).to(tl.pointer_type(tl.int32)), 16)
    units = rows * WIDTH
    for block in range(tl.program_id(0), tl.cdiv(units, BLOCK), tl.num_programs(0)):
        unit = block * BLOCK + tl.arange(0, BLOCK)
        slot = tl.load(loc + ranks[:, None] * rows + (unit // WIDTH)[None, :], mask=(unit < units)[None, :], other=-1)
        there = (unit * LANES)[None, :, None] + lanes[None, None, :]
        words = tl.load(source[:, None, None] + there, mask=(slot >= 0)[:, :, None])
        at = (slot * WIDTH + (unit % WIDTH)[None, :]) * LANES
        tl.store(pool + at[:, :, None] + lanes[None, None, :], words, mask=(slot >= 0)[:, :, None])


@triton.jit(do_not_specialize=INTS)
def pull_rows(
    bases,
    flags_at,
    counts,
    me,
    loc,
    rows,
    rows_at,
    pool,
    index_at,
    index_pool,
    WIDTH: tl.constexpr,
    LANES: tl.constexpr,
    INDEX_WIDTH: tl.constexpr,
    INDEX_LANES: tl.constexpr,
    WORLD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Every rank's rows stand in this rank's pool; the caller says when a rank may write its rows anew."""
    _meet(bases, flags_at, counts, me, WORLD)
    _pull(bases, rows_at, loc, _words(pool, LANES), rows, me, WIDTH, LANES, WORLD, BLOCK)
    if INDEX_WIDTH > 0:
        _pull(bases, index_at, loc, _words(index_pool, INDEX_LANES), rows, me, INDEX_WIDTH, INDEX_LANES, WORLD, BLOCK)


@triton.jit(do_not_specialize=INTS)
def meet_ranks(bases, flags_at, counts, me, WORLD: tl.constexpr):
    """All that ranks launched before this is done on every rank."""
    _meet(bases, flags_at, counts, me, WORLD)
