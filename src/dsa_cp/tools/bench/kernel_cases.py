"""What to measure of the kernels: fresh inputs, the implementations to compare, and the work that none of them can avoid.

Inputs come in as many sets as it takes to be larger than the GPU's cache; `step(at)` works on set `at` modulo their number.
Steps call launches and not stages, so that nothing of a contract is in a figure. Where a package is missing, its step is.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from dsa_cp.kernels import custom_ops, flash_mla_kernels, flashinfer_kernels, portable
from dsa_cp.numerics.rotation import cos_sin_table

RANK, ROPE, WIDTH = 512, 64, 576
TOPK, PAGE = 2048, 64
CACHE_BYTES = 192 << 20
"""Three times the L2 of an H200."""

Launch = Callable[[int], Any]


@dataclass(frozen=True)
class KernelCase:
    """One stage at one size.

    Attributes:
        stage: the stage.
        case: the size, in words.
        bytes_moved: bytes that must be read and written at least, each once.
        operations: floating-point operations; 0 where bytes alone count.
        steps: implementations by name; each works on input set `at`.
    """

    stage: str
    case: str
    bytes_moved: int
    operations: int = 0
    steps: dict[str, Launch] = field(default_factory=dict)


def kernel_cases() -> Iterator[KernelCase]:
    """Yield all cases, smallest first within a stage; the inputs of one are freed before the next."""
    for heads in (128, 64, 16):
        for tokens in (1024, 4096, 16384):
            yield rope_quantize_case(tokens, heads)
    for width, stride in ((WIDTH, WIDTH), (1152, 1152), (656, 656), (132, 132), (256, 256), (WIDTH, 708)):
        for unit in (1, PAGE):
            yield write_kv_case(32768, width, stride, unit)
    yield quantize_rows_case(32768)
    yield pack_index_key_case(32768)
    yield select_topk_case(512, 65536)
    for row_format in ("bf16", "fp8", "fp8_656"):
        for rows, heads in ((512, 128), (4096, 128), (4096, 64), (4096, 16)):
            yield attend_case(rows, heads, row_format)


def _sets(num_bytes: int, make: Callable[[], Any]) -> list[Any]:
    """Return so many input sets that a round over them is larger than the cache."""
    return [make() for _ in range(max(2, math.ceil(CACHE_BYTES / num_bytes)))]


def _over(sets: list[Any], call: Callable[..., Any]) -> Launch:
    """Return the step that gives set `at` to a launch."""
    return lambda at: call(*sets[at % len(sets)])


def _normal(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def rope_quantize_case(tokens: int, heads: int) -> KernelCase:
    """RoPE and e4m3 of q and K: bf16 in, one byte out."""
    moved = tokens * (heads + 1) * WIDTH * 3
    table = cos_sin_table(32768, ROPE, 10000.0).cuda()

    def make() -> tuple[Any, ...]:
        halves = (_normal(tokens, heads, RANK), _normal(tokens, heads, ROPE), _normal(tokens, RANK), _normal(tokens, ROPE))
        return (*halves, torch.randint(0, 32768, (tokens,), device="cuda"), table, False, 1.0, 1.0)

    sets = _sets(moved, make)
    steps = {"triton": _over(sets, custom_ops.rope_quantize)}
    if find_spec("flashinfer"):
        steps["flashinfer"] = _over(sets, flashinfer_kernels.launch_rope_quantize)
    return KernelCase("rope_quantize", f"{tokens} tokens x {heads} heads", moved, steps=steps)


def write_kv_case(rows: int, width: int, stride: int, unit: int) -> KernelCase:
    """Rows to permuted slots: a row in, a row out, and its slot; `unit` rows stay neighbours (64: pages are permuted)."""
    moved = rows * (2 * width + 8)

    def make() -> tuple[Tensor, Tensor, Tensor]:
        pool = torch.empty(2 * rows, width, dtype=torch.uint8, device="cuda")
        kv = torch.randint(0, 256, (rows, stride), dtype=torch.uint8, device="cuda")[:, :width]
        first = torch.randperm(2 * rows // unit, device="cuda")[: rows // unit, None] * unit
        return pool, kv, (first + torch.arange(unit, device="cuda")).flatten()

    sets = _sets(moved, make)
    steps = {"triton": _over(sets, custom_ops.write_kv), "index_copy_": _over(sets, _index_copy)}
    name = f"{rows} x {width} B, {stride} apart, {'rows' if unit == 1 else 'pages'} permuted"
    return KernelCase("write_kv", name, moved, steps=steps)


def _index_copy(pool: Tensor, kv: Tensor, loc: Tensor) -> None:
    pool.index_copy_(0, loc, kv)


def quantize_rows_case(rows: int) -> KernelCase:
    """bf16 rows into `fp8_656`."""
    moved = rows * (2 * WIDTH + 656)

    def make() -> tuple[Tensor, Tensor, int]:
        latent = _normal(rows, WIDTH)
        return latent[:, :RANK], latent[:, RANK:], 128

    sets = _sets(moved, make)
    steps = {"triton": _over(sets, custom_ops.quantize_groups), "torch": _over(sets, portable.quantize_groups)}
    return KernelCase("quantize_rows", f"{rows} rows", moved, steps=steps)


def pack_index_key_case(rows: int) -> KernelCase:
    """bf16 indexer keys into e4m3 with one scale."""
    moved = rows * (256 + 132)
    sets = _sets(moved, lambda: (_normal(rows, 128), None, 128))
    steps = {"triton": _over(sets, custom_ops.quantize_groups), "torch": _over(sets, portable.quantize_groups)}
    return KernelCase("pack_index_key", f"{rows} rows", moved, steps=steps)


def select_topk_case(rows: int, num_keys: int, heads: int = 64) -> KernelCase:
    """The indexer's choice of 2,048 keys: each row sees all; at least q, keys and lists must move."""
    packed = portable.quantize_groups(_normal(num_keys, 128), None, 128).view(num_keys // PAGE, PAGE, -1)
    table = torch.randperm(num_keys // PAGE, device="cuda").int()[None]
    lens = torch.full((rows,), num_keys, dtype=torch.int32, device="cuda")
    q, weights = _normal(rows, heads, 128), torch.randn(rows, heads, device="cuda")
    tables = (lens, torch.zeros_like(lens), table)
    moved = q.nbytes + packed.nbytes + rows * TOPK * 4
    steps: dict[str, Launch] = {"triton": lambda at: custom_ops.best_keys(q, weights, packed, *tables, TOPK, num_keys, True)}
    return KernelCase("select_topk", f"{rows} rows of {num_keys} keys", moved, 2 * rows * num_keys * heads * 128, steps)


def attend_inputs(rows: int, heads: int, row_format: str, num_keys: int = 65536) -> tuple[Any, ...]:
    """Return the arguments of `custom_ops.attend`: one request on shuffled pages, distinct keys for each of 32 rows."""
    values, pages = _normal(num_keys, WIDTH), num_keys // PAGE
    q = _normal(rows, heads, WIDTH)
    if row_format == "fp8":
        values, q = values.to(torch.float8_e4m3fn), q.to(torch.float8_e4m3fn).view(torch.uint8)
    group = 128 if row_format == "fp8_656" else 0
    packed = portable.quantize_groups(values[:, :RANK], values[:, RANK:], group) if group else values.view(torch.uint8)
    topk = torch.stack([torch.randperm(num_keys, device="cuda")[:TOPK] for _ in range(32)]).int()
    per_row = (
        topk.repeat(math.ceil(rows / 32), 1)[:rows].contiguous(),
        torch.full((rows,), num_keys, dtype=torch.int32, device="cuda"),
        torch.zeros(rows, dtype=torch.int32, device="cuda"),
    )
    table = torch.randperm(pages, device="cuda").int()[None]
    return (q, packed.view(pages, PAGE, -1), *per_row, table, 0.07, 1.0, 1.0, torch.bfloat16, RANK, group)


def attend_case(rows: int, heads: int, row_format: str) -> KernelCase:
    """Sparse MLA over 2,048 of 65,536 keys a row, from top-k positions to bf16 outputs."""
    arguments = attend_inputs(rows, heads, row_format)
    moved = rows * heads * (WIDTH * arguments[0].element_size() + 2 * RANK) + rows * TOPK * 4 + arguments[1].numel()
    operations = 2 * rows * heads * TOPK * (WIDTH + RANK)
    steps: dict[str, Launch] = {"triton": lambda at: custom_ops.attend(*arguments)}
    if find_spec("flash_mla") and heads in flash_mla_kernels.HEADS:
        steps["flash_mla"] = lambda at: flash_mla_kernels.launch_attend(*arguments)
    return KernelCase("attend", f"{rows} rows x {heads} heads, {row_format}", moved, operations, steps)
