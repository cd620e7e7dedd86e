"""Functions of an engine under their own signatures, and observers around them: what the path looks like from outside.

They are shaped like sglang 0.5.23's: K of one head in three dims, three results of the fused rotation, halves instead of
packed rows, a KV cache of slots in e4m3, no argument for the batch.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import dsa_contracts.stages as contracts
from dsa_contracts import CpBatch, Mode, RopeStyle, declare, declare_lasting
from dsa_contracts.core.comm import PassiveComm
from dsa_contracts.core.marks import Plain
from dsa_contracts.core.runtime.observe import Observer, observe
from dsa_contracts.core.runtime.stage import unchecked_function
from dsa_contracts.dsa.engine_shapes import KvParts, paged, without_heads
from dsa_contracts.dsa.row_formats import fp8_format
from dsa_contracts.dsa.states import Fp8Row, Local, Packed, Pool, Raw, Rotated, Table
from dsa_contracts.dsa.typevars import L
from dsa_cp import stages
from dsa_cp.layouts import Zigzag, build_batches
from dsa_cp.numerics.rotation import cos_sin_table

HEADS, LATENT, ROPE, PAGE = 2, 8, 4, 4
FORMAT = fp8_format(LATENT, ROPE)


def batches(*lens: int, **options: Any) -> tuple[CpBatch[Any], ...]:
    """Two ranks of a zigzag; by default seven tokens, of which rank 0 holds three."""
    total = sum(lens or (7,))
    table = torch.arange(1, 4, dtype=torch.int32)[None]
    slots: dict[str, Any] = {"out_cache_loc": torch.arange(PAGE, PAGE + total), "page_table": table, "page_size": PAGE}
    return build_batches(Zigzag(), 2, lens or (7,), **(slots | options))


def quantize_and_rope(
    q_nope: Tensor, q_rope: Tensor, k_nope: Tensor, k_rope: Tensor, pos_ids: Tensor, cos_sin_cache: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return merged q, and the halves of K in three dims, as e4m3."""
    fused: Any = unchecked_function(stages.rope_quantize)
    keys = (k_nope.squeeze(1), k_rope.squeeze(1))
    rows = min(len(pos_ids), len(keys[0]), len(q_nope))  # a kernel takes what it is given, up to the shortest
    cut = [one[:rows] for one in (q_nope, q_rope, *keys, pos_ids)]
    q, kv = fused(*cut, cos_sin_cache, RopeStyle.NEOX, 1.0, 1.0, None)
    nope, rope = kv.view(torch.float8_e4m3fn).split([LATENT, ROPE], dim=1)
    return q, nope.unsqueeze(1), rope.contiguous().unsqueeze(1)


def gather_halves(batch: CpBatch[Any], nope: Tensor, rope: Tensor) -> tuple[Tensor, Tensor]:
    """Return both halves as gathered, rank after rank; the other ranks' rows are zeros, since one rank stands for all."""

    def gathered(part: Tensor) -> Tensor:
        out = torch.zeros(batch.nnz_gathered, part.shape[-1], dtype=torch.uint8)
        first = batch.cp_rank * batch.nnz_padded
        out[first : first + batch.nnz_local] = part.squeeze(1).view(torch.uint8)[: batch.nnz_local]
        return out.view(torch.float8_e4m3fn)

    return gathered(nope), gathered(rope)


def set_kv_buffer(buffer: Tensor, loc: Tensor, nope: Tensor, rope: Tensor) -> None:
    """Write halves into the slots of a cache; negative slots are skipped."""
    at = loc >= 0
    rows = torch.cat([nope.view(torch.uint8), rope.view(torch.uint8)], dim=1)
    buffer.view(torch.uint8)[loc[at], 0] = rows[at]


@dataclass
class Engine:
    """One rank of an engine with observers around its functions.

    Attributes:
        mode: the mode of the observers.
        positions, quantise, gather, write, lens: the observers.
        calls: the functions that are watched; a fault replaces one.
    """

    mode: Mode = Mode.DEVELOPMENT
    positions: Observer = field(init=False)
    quantise: Observer = field(init=False)
    gather: Observer = field(init=False)
    write: Observer = field(init=False)
    lens: Observer = field(init=False)
    attend: Observer = field(init=False)

    def __post_init__(self) -> None:
        """Make the observers."""
        heads = {"k_nope": without_heads, "k_rope": without_heads}
        self.positions = observe(contracts.rebuild_positions, mode=self.mode)
        self.quantise = observe(contracts.rope_quantize, adapt=heads, mode=self.mode)
        self.gather = observe(contracts.all_gather_kv, mode=self.mode)
        self.write = observe(contracts.write_kv, adapt={"pool": paged(PAGE)}, mode=self.mode)
        self.lens = observe(contracts.reorder_causal_lens, mode=self.mode)
        self.attend = observe(contracts.attend, adapt={"pool": paged(PAGE)}, mode=self.mode)

    def layer(self, batch: CpBatch[Any], layer: int = 0, **faults: Callable[..., Any]) -> None:
        """Run one layer of one rank under the observers; `faults` replace what stands between its functions."""
        batch = batch.at_layer(layer)
        do: dict[str, Callable[..., Any]] = {name: faults.get(name, _as_it_is) for name in STEPS}
        buffer = do["buffer"](cache(layer))
        table: Any = declare_lasting(do["table"](cos_sin_table(16, ROPE, 1e4)), Table, Plain, "engine")
        q_nope, q_rope, k_nope, k_rope = inputs(batch)
        local_positions = batch.positions[batch.local_rows]
        self.positions.after(
            self.positions.before(positions=batch.positions, rows=batch.local_rows, batch=batch),
            positions=local_positions,
        )
        positions = do["positions"](local_positions)
        k_nope, k_rope = do["k"]((k_nope, k_rope))
        seen = self.quantise.before(
            q_nope=q_nope,
            q_rope=q_rope,
            k_nope=k_nope,
            k_rope=k_rope,
            positions=positions,
            cos_sin_cache=table,
            batch=batch,
        )
        q, nope, rope = quantize_and_rope(q_nope, q_rope, k_nope, k_rope, positions, table)
        self.quantise.after(seen, q=q, kv=KvParts(nope, rope))
        halves = do["halves"]((nope, rope))
        group = PassiveComm(2, batch.cp_rank)
        seen_gather = self.gather.before(kv=KvParts(*halves), row_format=FORMAT, batch=batch, comm=group)
        gathered = gather_halves(batch, *halves)
        self.gather.after(seen_gather, gathered=KvParts(*gathered))
        gathered, loc = do["gathered"](gathered), do["loc"](batch.rank_major_loc)
        seen_write = self.write.before(pool=buffer, kv=KvParts(*gathered), loc=loc, row_format=FORMAT, batch=batch)
        set_kv_buffer(buffer, loc, *gathered)
        self.write.after(seen_write)
        lens = batch.causal_lens[batch.local_rows]
        self.lens.after(
            self.lens.before(causal_lens=batch.causal_lens, rows=batch.local_rows, batch=batch), local_causal_lens=lens
        )
        self.attend.before(
            q=do["q"](q),
            pool=buffer,
            causal_lens=do["lens"](lens),
            request_of_row=batch.local_request_of_row,
            page_table=batch.page_table,
            row_format=FORMAT,
            batch=batch,
        )


OWN: Any = Local[L]  # type: ignore[valid-type]
STEPS = ("buffer", "table", "positions", "k", "halves", "gathered", "loc", "q", "lens")
"""What a fault can replace between the engine's functions."""


def _as_it_is(one: Any) -> Any:
    return one


def cache(layer: int, width: int = LATENT + ROPE) -> Tensor:
    """Return a layer's KV cache as an engine holds it: slots of one head in e4m3, two more than whole pages."""
    buffer = torch.zeros(4 * PAGE + 2, 1, width, dtype=torch.uint8).view(torch.float8_e4m3fn)
    packed: Any = Packed
    return declare_lasting(buffer, Pool, packed[Fp8Row, Rotated], "engine", layer)


def rows(count: int, *shape: int) -> Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(count)).bfloat16()


def inputs(batch: CpBatch[Any]) -> tuple[Any, ...]:
    """Return this rank's rows as the projections leave them: latent and rope part of q, then of K in three dims."""
    shapes = ((Plain, (HEADS, LATENT)), (Raw, (HEADS, ROPE)), (Plain, (1, LATENT)), (Raw, (1, ROPE)))
    return tuple(declare(rows(batch.nnz_local, *shape), OWN, state, batch, "engine") for state, shape in shapes)
