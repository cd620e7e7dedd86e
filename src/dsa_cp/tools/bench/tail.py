"""The K tail in every order, eager and as graph replay, each checked for equal cache bytes before it is timed."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from dsa_contracts import Comm
from dsa_contracts.core.errors import ArgumentError
from dsa_cp.comm.distributed import DistributedComm
from dsa_cp.comm.symmetric import SymmetricComm
from dsa_cp.layouts import Zigzag, build_batch
from dsa_cp.tools.bench.measure import Timing, capture, time_eager, time_events, time_graph, timing_of
from dsa_cp.tools.bench.tail_orders import INDEX, INDEX_BYTES, KV_BYTES, ORDERS, RANK, ROPE, Pools, TailInputs

PAGE = 64
LAYERS = 4
"""Pools that take turns, so that repeated runs do not write to what is in the cache already."""

STEPS = 12
"""Layers of one graph."""

POISON = 0xA5
COPY_BYTES = 256 << 20


@dataclass(frozen=True)
class Bandwidths:
    """Bytes a second, in GB/s: of a copy on one GPU, read and written; of a peer's memory, alone and with all ranks at it."""

    local: float
    peer: float
    peer_both_ways: float

    def as_json(self) -> dict[str, object]:
        """Return the fields as one record."""
        parts = {"local_gb_s": self.local, "peer_gb_s": self.peer, "peer_both_ways_gb_s": self.peer_both_ways}
        return {"part": "bandwidth", **{name: round(value, 1) for name, value in parts.items()}}


def measure_tail(comm: Comm, sizes: Sequence[int], seed: int) -> list[dict[str, object]]:
    """Measure as one rank of a group over NCCL; returns records, the same kinds in the same order on every rank.

    Raises:
        ArgumentError: DSA602, an order left other bytes in a pool than the gathered rows in their slots.
    """
    if not isinstance(comm, DistributedComm):
        raise ArgumentError("the K tail is measured over NCCL, a process a GPU")
    device = torch.device("cuda", torch.cuda.current_device())
    most = max(sizes)
    shared = SymmetricComm(comm, device, staged_bytes=most * (KV_BYTES + INDEX_BYTES) + 4096)
    pages = -(-most * comm.size // PAGE) + 2
    layers = zip(
        shared.new_pools(LAYERS, (pages, PAGE, KV_BYTES)), shared.new_pools(LAYERS, (pages, PAGE, INDEX_BYTES)), strict=True
    )
    pools = [Pools(kv, index) for kv, index in layers]
    speeds = _bandwidths(shared, comm, device)
    records: list[dict[str, object]] = [speeds.as_json()]
    for rows in sizes:
        for with_index in (False, True):
            for name in ORDERS:
                records += _measure_order(name, rows, with_index, shared, pools, speeds, seed)
    return records


def _measure_order(
    name: str, rows: int, with_index: bool, comm: SymmetricComm, pools: list[Pools], speeds: Bandwidths, seed: int
) -> list[dict[str, object]]:
    """Check one order at one size, then time it eagerly and as a graph, and check what the graph left."""
    align = partial(_align, comm)
    given = make_inputs(comm.size, comm.rank, rows, seed + rows)
    order = ORDERS[name]

    def step(at: int) -> None:
        order(comm, given, pools[at % LAYERS], with_index)

    _stage(comm, given, with_index)
    for at in range(2):
        _poison(comm, pools)
        step(at)
        _check(f"{name} at {rows} rows", comm, given, pools[at], with_index)
    eager = time_eager(step, align)
    graph = capture(step, STEPS)
    _poison(comm, pools)
    replays = time_graph(graph, align, steps=STEPS)
    for layer in pools:
        _check(f"{name} at {rows} rows, replayed", comm, given, layer, with_index)
    row_bytes = KV_BYTES + INDEX_BYTES * with_index
    remote = rows * (comm.size - 1) * row_bytes
    floors = {"floor_us": remote / speeds.peer_both_ways / 1e3, "one_way_floor_us": remote / speeds.peer / 1e3}
    case = {"part": "k_tail", "order": name, "rows": rows, "with_index": with_index, "row_bytes": row_bytes}
    rounded = {key: round(value, 2) for key, value in floors.items()}
    return [{**case, "mode": mode, **timing.as_json(), **rounded} for mode, timing in (("eager", eager), ("graph", replays))]


def make_inputs(cp_size: int, rank: int, rows: int, seed: int) -> TailInputs:
    """Return fresh rows of one rank, and the slots of one request of `cp_size * rows` tokens in shuffled pages."""
    from dsa_cp.triton_jit.quantize_rows import quantize_groups

    device = torch.device("cuda", torch.cuda.current_device())
    generator = torch.Generator(device).manual_seed(seed * 64 + rank)
    latent, rope, key = (
        torch.randn(rows, width, generator=generator, device=device).bfloat16() for width in (RANK, ROPE, INDEX)
    )
    kv = torch.cat([latent, rope], dim=-1).float().to(torch.float8_e4m3fn).view(torch.uint8)
    index = quantize_groups(key, None, INDEX)
    tokens = rows * cp_size
    pages = torch.randperm(-(-tokens // PAGE), generator=torch.Generator().manual_seed(seed))
    token = torch.arange(tokens)
    slots = pages[token // PAGE] * PAGE + token % PAGE
    batch = build_batch(Zigzag(), cp_size, rank, [tokens], out_cache_loc=slots.to(device), device=device)
    require_even(batch.rank_lens, rows)
    loc = batch.required("rank_major_loc", "the K tail")
    halves = [rows // 2, rows - rows // 2]
    order = [*(2 * peer for peer in range(cp_size)), *(2 * peer + 1 for peer in reversed(range(cp_size)))]
    return TailInputs(latent, rope, key, kv, index, torch.cat([kv, index], -1), loc, slots.to(device), (halves, order))


def require_even(rank_lens: tuple[int, ...], rows: int) -> None:
    """Raise ArgumentError DSA602 unless every rank has the same, even number of rows: upstream's pieces are cut by it."""
    if set(rank_lens) != {rows} or rows % 2:
        raise ArgumentError(f"{rows} rows a rank are not an even number on each of {len(rank_lens)} ranks")


def _align(comm: SymmetricComm) -> None:
    """Bring all ranks to one point, on the device and on the host."""
    comm.meet()
    torch.cuda.synchronize()
    comm.agree("bench")


def _stage(comm: SymmetricComm, given: TailInputs, with_index: bool) -> None:
    """Put the rows into both halves of the symmetric buffer, where a fused stage would have written them."""
    _align(comm)
    rows = [given.kv, given.index] if with_index else [given.kv]
    for _ in range(2):
        for place, part in zip(comm.staged_rows(given.rows, *(part.shape[1] for part in rows)), rows, strict=True):
            place.copy_(part)
    _align(comm)


def _poison(comm: SymmetricComm, pools: list[Pools]) -> None:
    """Fill all pools with bytes that are no row's; peers write to them, so that all ranks must have done so."""
    _align(comm)
    for layer in pools:
        layer.kv.fill_(POISON)
        layer.index.fill_(POISON)
    _align(comm)


def _check(what: str, comm: SymmetricComm, given: TailInputs, pools: Pools, with_index: bool) -> None:
    """Raise ArgumentError DSA602 unless pools hold each rank's rows in their slots, and poison elsewhere."""
    _align(comm)
    pairs = [(pools.kv, given.kv), (pools.index, given.index)]
    for pool, rows in pairs[: 1 + with_index]:
        want = torch.full_like(pool, POISON).view(-1, pool.shape[-1])
        want[given.loc] = comm.all_gather(rows)
        wrong = int((pool.view(-1, pool.shape[-1]) != want).any(dim=1).sum())
        if wrong:
            raise ArgumentError(f"{what}: {wrong} slots of rank {comm.rank} hold other bytes")
    _align(comm)


def _bandwidths(shared: SymmetricComm, comm: Comm, device: torch.device) -> Bandwidths:
    """Measure copies of 256 MiB, by the copy engines."""
    (memory,) = shared.new_pools(1, (COPY_BYTES,))
    memory.random_(0, 256)
    peer = shared.peer_memory(memory, (comm.rank + 1) % comm.size)
    target = torch.empty_like(memory)

    def copy(source: Tensor, *, ranks: range) -> Timing:
        _align(shared)
        timing = time_events(partial(target.copy_, source)) if comm.rank in ranks else timing_of([float("inf")])
        _align(shared)
        return timing

    local = copy(memory, ranks=range(comm.size))
    alone = [copy(peer, ranks=range(rank, rank + 1)) for rank in range(comm.size)][comm.rank]
    together = copy(peer, ranks=range(comm.size))
    rates = [COPY_BYTES / timing.median_us / 1e3 for timing in (local, alone, together)]
    # One floor for all: the mean over ranks.
    shared_rates = comm.all_gather(torch.tensor([rates], dtype=torch.float64, device=device).view(torch.uint8))
    means = shared_rates.view(torch.float64).mean(dim=0).tolist()
    return Bandwidths(2 * means[0], means[1], means[2])
