"""Record what sglang 0.5.23 does with small prefill batches on a CPU: `python record_sglang.py OUT`, in a venv with sglang.

The strategies, the KV pool and its writer are sglang's own; ranks are replayed in one process, with a stand-in for the group.
Physical padding is on, as `prepare_cp_forward` has it. K is three-dimensional, as the DSA backend hands it over. After the
prefill each request decodes one token into the same pool.

Needs sglang==0.5.23 with its CPU dependencies, beside the CPU build of torch; nothing of this project is imported.
"""

import json
import sys
import types
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

LATENT, ROPE, PAGE, PAGES = 8, 4, 64, 3
WIDTH = LATENT + ROPE
CASES = [
    (2, [4], [0]),
    (2, [9, 4], [3, 0]),
    (2, [17], [64]),
    (4, [8, 11], [0, 5]),
    (4, [33], [0]),
]
LAYER = types.SimpleNamespace(layer_id=0, is_cross_attention=False)


class RecordedError(Exception):
    """Ends a rank's first turn at its collective."""


class Real:
    """The modules of sglang that are called."""

    def __init__(self) -> None:
        """Import them; what torchvision's compiled part would declare is declared first."""
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float threshold) -> Tensor")
        self.version: str = import_module("sglang").__version__
        self.strategies: Any = {
            "zigzag": import_module("sglang.srt.layers.cp.zigzag").ZigzagCPStrategy,
            "interleave": import_module("sglang.srt.layers.cp.interleave").InterleaveCPStrategy,
        }
        self.zigzag: Any = import_module("sglang.srt.layers.cp.zigzag")
        self.pools: Any = import_module("sglang.srt.mem_cache.memory_pool")
        self.base: Any = import_module("sglang.srt.layers.cp.base")
        self.padding: Any = import_module("sglang.srt.layers.cp.padding")
        self.parallel: Any = import_module("sglang.srt.runtime_context").get_parallel


class Group:
    """A group of which every rank's part is recorded in a first turn and replayed in a second."""

    def __init__(self, size: int, full: torch.Tensor | None) -> None:
        self.world_size, self.full = size, full
        self.sent = torch.empty(0)

    def all_gather_into_tensor(self, out: torch.Tensor, part: torch.Tensor) -> None:
        self.sent = part.clone()
        if self.full is None:
            raise RecordedError
        out.copy_(self.full)


def rows_of(count: int, start: int = 0) -> torch.Tensor:
    """Row t, column c is (12 t + c) mod 251 + 1: whole numbers that bf16 holds."""
    return ((torch.arange(start * WIDTH, (start + count) * WIDTH) % 251) + 1).view(count, WIDTH).to(torch.bfloat16)


def pool_of(real: Real) -> Any:
    with real.parallel().override(attn_dcp_size=1, attn_dcp_rank=0, dcp_enabled=False, attn_cp_size=1, attn_cp_rank=0):
        pool = real.pools.MLATokenToKVPool(
            size=(PAGES - 1) * PAGE,
            page_size=PAGE,
            dtype=torch.bfloat16,
            kv_lora_rank=LATENT,
            qk_rope_head_dim=ROPE,
            layer_num=1,
            device="cpu",
            enable_memory_saver=False,
        )
    pool.kv_buffer[0].zero_()
    return pool


def written(pool: Any) -> dict[str, list[int]]:
    """Return the slots that are not zero, with their values."""
    rows = pool.kv_buffer[0].view(-1, WIDTH).to(torch.int64)
    return {str(slot): rows[slot].tolist() for slot in range(len(rows)) if bool(rows[slot].any())}


def facts_of(tensor: torch.Tensor) -> dict[str, object]:
    return {
        "shape": list(tensor.shape),
        "strides": list(tensor.stride()),
        "offset": tensor.storage_offset(),
        "values": tensor.to(torch.int64).tolist(),
    }


def recorded(real: Real, kind: str, cp_size: int, extend: list[int], prefix: list[int]) -> dict[str, object]:
    """Return one batch on all ranks."""
    strategy = real.strategies[kind](cp_size=cp_size)
    nnz, seq = sum(extend), [new + old for new, old in zip(extend, prefix, strict=True)]
    positions = torch.cat([torch.arange(old, old + new) for new, old in zip(extend, prefix, strict=True)])
    slots = torch.randperm((PAGES - 1) * PAGE - 1, generator=torch.Generator().manual_seed(nnz))[: nnz + len(extend)] + 1
    table = rows_of(nnz)

    def with_rank(rank: int, group: Group, call: Any) -> Any:
        on = {"attn_cp_rank": rank, "attn_cp_size": cp_size, "attn_cp_group": group, "enable_prefill_cp": True}
        off = {"cp_strategy": kind, "attn_dcp_size": 1, "attn_dcp_rank": 0, "dcp_enabled": False}
        with real.parallel().override(**on, **off):
            return call()

    def forward_batch() -> Any:
        meta = strategy.build_metadata(nnz, seq, list(extend))
        real.base.init_cp_strategy(enable_prefill_cp=True, cp_size=cp_size, cp_strategy=kind)
        real.padding.pad_logical_token_to_physical(meta)
        return types.SimpleNamespace(
            attn_cp_metadata=meta,
            input_ids=torch.zeros(nnz, dtype=torch.int64),
            forward_mode=types.SimpleNamespace(is_context_parallel_extend=lambda: True),
            extend_seq_lens_cpu=extend,
            positions=positions,
            out_cache_loc=slots[:nnz],
            out_cache_loc_is_physical=True,
        )

    ranks: list[dict[str, Any]] = []
    for rank in range(cp_size):
        group = Group(cp_size, None)
        batch = with_rank(rank, group, forward_batch)
        ids = (torch.arange(nnz) + 1).view(nnz, 1)
        shard = with_rank(rank, group, lambda: strategy.shard_hidden_states(ids, batch))[:, 0] - 1  # noqa: B023
        own = with_rank(rank, group, lambda: strategy.shard_position_ids(positions, batch))  # noqa: B023
        meta = batch.attn_cp_metadata
        ranks.append(
            {
                "shard_rows": shard.tolist(),
                "positions": own.tolist(),
                "per_rank_actual_token": meta.per_rank_actual_token,
                "per_rank_logical_token": meta.per_rank_logical_token,
            }
        )

    def local(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
        rows = torch.tensor(ranks[rank]["shard_rows"])
        kv = torch.where(rows[:, None] >= 0, table[rows.clamp(min=0)], 0)[:, None]
        return kv[..., :LATENT].contiguous(), kv[..., LATENT:].contiguous()

    sent = []
    for rank in range(cp_size):
        group = Group(cp_size, None)
        try:
            with_rank(rank, group, lambda: strategy.materialize_full_mla_kv(forward_batch(), LAYER, *local(rank)))  # noqa: B023
        except RecordedError:
            sent.append(group.sent)
    full = torch.cat(sent)
    for rank in range(cp_size):
        pool = pool_of(real)
        seen: list[Any] = []
        write = pool.set_mla_kv_buffer

        def seeing(layer: Any, loc: Any, k: torch.Tensor, k_rope: torch.Tensor) -> None:
            seen.append((k, k_rope))  # noqa: B023
            write(layer, loc, k, k_rope)  # noqa: B023

        pool.set_mla_kv_buffer = seeing
        real.zigzag.get_token_to_kv_pool = lambda: pool  # noqa: B023
        group = Group(cp_size, full)
        out = with_rank(rank, group, lambda: strategy.materialize_full_mla_kv(forward_batch(), LAYER, *local(rank)))  # noqa: B023
        if kind == "interleave":  # the backend writes what the strategy gathered
            with_rank(rank, group, lambda: pool.set_mla_kv_buffer(LAYER, slots[:nnz], *out))  # noqa: B023
        (k, k_rope), after_prefill = seen[0], written(pool)
        decoded = rows_of(len(extend), nnz)[:, None]
        halves = (decoded[..., :LATENT], decoded[..., LATENT:])
        with_rank(rank, group, lambda: write(LAYER, slots[nnz:], *halves))  # noqa: B023
        ranks[rank] |= {
            "collective_input": sent[rank].view(-1, WIDTH).to(torch.int64).tolist(),
            "k": facts_of(k),
            "k_rope": facts_of(k_rope),
            "pool_after_prefill": after_prefill,
            "pool_after_decode": written(pool),
        }
    return {
        "strategy": kind,
        "cp_size": cp_size,
        "extend_lens": extend,
        "prefix_lens": prefix,
        "out_cache_loc": slots[:nnz].tolist(),
        "decode_loc": slots[nnz:].tolist(),
        "ranks": ranks,
    }


def skipped(real: Real) -> dict[str, object]:
    """Return which slots the writer reaches for -1, 0 and 70."""
    pool, rows = pool_of(real), rows_of(3)[:, None]
    with real.parallel().override(attn_dcp_size=1, attn_dcp_rank=0, dcp_enabled=False):
        pool.set_mla_kv_buffer(LAYER, torch.tensor([-1, 0, 70]), rows[..., :LATENT], rows[..., LATENT:])
    return {"loc": [-1, 0, 70], "slots_of_pool": pool.kv_buffer[0].shape[0], "written": sorted(map(int, written(pool)))}


def main() -> None:
    torch.cuda.current_stream = lambda *_args, **_options: None  # type: ignore[assignment]
    real = Real()
    cases = [recorded(real, kind, *case) for kind in ("zigzag", "interleave") for case in CASES]
    about = {"sglang": real.version, "torch": torch.__version__, "latent": LATENT, "rope": ROPE, "page_size": PAGE}
    record = {"about": about | {"pages": PAGES}, "skip": skipped(real), "cases": cases}
    Path(sys.argv[1]).write_text(json.dumps(record, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
