"""Record what vLLM 0.33.0 does with small batches on a CPU: `python record_vllm.py VLLM_FOLDER OUT`.

VLLM_FOLDER is `vllm/` of the unpacked wheel. Run as they are: `PCPManager` (partition_batch, prepare_attn), `InputBatch` and
`maybe_gather_mla_latent_cache_inputs`. The rest that they import is a stand-in. Two things are redone in torch: the slot
kernel, and, under decode context parallelism, which slots are a rank's own (`cp_local_slot` with interleave 1). A writer of
vLLM passes over negative slots. Padding rows hold 7: the model computes them from token 0, and nobody reads them.

Needs torch, numpy and triton; nothing of this project is imported.
"""

import ast
import enum
import json
import logging
import sys
import types
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

VERSION, LATENT, ROPE, PAGE = "0.33.0", 8, 4, 8
WIDTH = LATENT + ROPE
# name, cp_size, extend, prefix, decodes, dcp_size, rows of a CUDA graph
CASES: list[tuple[str, int, list[int], list[int], list[int], int, int | None]] = [
    ("full chunks", 2, [8, 5], [0, 3], [], 1, None),
    ("short prefills", 3, [2, 9, 1], [0, 5, 0], [], 1, None),
    ("decodes sharded", 2, [1, 8, 1], [9, 0, 7], [0, 2], 1, None),
    ("decodes sharded alone", 2, [1, 1, 1], [9, 2, 7], [0, 1, 2], 1, None),
    ("a request without tokens", 2, [6, 0, 5], [0, 4, 2], [], 1, None),
    ("graph padding", 2, [9, 5], [0, 5], [], 1, 12),
    ("graph padding of decodes", 2, [1, 1, 1], [9, 2, 7], [0, 1, 2], 1, 4),
    ("decodes replicated", 2, [1, 8], [9, 0], [0], 2, None),
    ("decodes replicated behind prefills", 2, [9, 1, 1], [0, 9, 4], [1, 2], 2, None),
    ("decodes replicated alone", 2, [1, 1], [9, 3], [0, 1], 2, None),
    ("sharded cache", 2, [8, 6], [0, 5], [], 2, None),
]
GROUP: list[Any] = [None]


def stand_in(name: str, path: Path | None = None, **attributes: object) -> None:
    """Put a module of this name in the place of vLLM's; one with a path finds vLLM's own files below it."""
    module = types.ModuleType(name)
    module.__path__ = [str(path)] if path else []
    for key, value in attributes.items():
        setattr(module, key, value)
    sys.modules[name] = module


def functions(path: Path, names: list[str], space: dict[str, Any]) -> dict[str, Any]:
    """Return functions of a file of vLLM without importing what else is in it."""
    body: list[ast.stmt] = [
        node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef) and node.name in names
    ]
    exec(compile(ast.Module(body, []), str(path), "exec"), space)
    return {name: space[name] for name in names}


class CUDAGraphMode(enum.Enum):
    """vLLM's modes."""

    NONE, PIECEWISE, FULL = 0, 1, 2


class BlockTables:
    """Page tables, with the slots of the kernel for one rank."""

    def __init__(self, table: torch.Tensor) -> None:
        self.table, self.cp_interleave, self.num_kv_cache_groups, self.input_block_tables = table, 1, 1, [table]

    def gather_block_tables(self, idx: Any, padded: int, out: Any = None, out_ptrs: Any = None) -> tuple[torch.Tensor, ...]:
        out[0][: len(idx)] = self.table[idx]
        out[0][len(idx) : padded] = 0
        return tuple(one[:padded] for one in out)

    def compute_slot_mappings(self, idx: Any, starts: Any, positions: Any, count: int, out: Any = None) -> torch.Tensor:
        out.fill_(-1)
        at = starts.tolist()
        for row, request in enumerate(idx.tolist()):
            own = positions[at[row] : at[row + 1]]
            page = (own // PAGE).clamp(max=self.table.shape[1] - 1)  # more only where `own_slots` follows
            out[0, at[row] : at[row + 1]] = self.table[request, page].long() * PAGE + own % PAGE
        return out[:, :count]  # type: ignore[no-any-return]


def load(root: Path) -> tuple[Any, Any, Any, Any]:
    """Return the real pcp_manager, input_batch and attention/ops/pcp, and the mode class that they know."""
    folders = ("", "v1", "v1/worker", "v1/worker/gpu", "v1/attention", "v1/attention/ops")
    for folder in folders:
        stand_in(".".join(["vllm", *folder.split("/")]) if folder else "vllm", root / folder)
    for name in ("vllm.v1.attention.backends", "vllm.distributed", "vllm.utils"):
        stand_in(name)
    stand_in("vllm.config", CUDAGraphMode=CUDAGraphMode, VllmConfig=object)
    stand_in("vllm.distributed.parallel_state", get_dcp_group=None, get_pcp_group=lambda: GROUP[0], get_tp_group=None)
    stand_in("vllm.logger", init_logger=logging.getLogger)
    stand_in("vllm.triton_utils", triton=import_module("triton"), tl=import_module("triton.language"))
    setattr(sys.modules["vllm.utils"], "random_uuid", lambda: "x")  # noqa: B010
    stand_in("vllm.utils.math_utils", cdiv=lambda a, b: -(-a // b))
    space = {"torch": torch, "np": np, "PIN_MEMORY": False}
    stand_in("vllm.utils.torch_utils", **functions(root / "utils/torch_utils.py", ["async_tensor_h2d"], space))
    lens = functions(root / "v1/attention/backends/utils.py", ["get_dcp_local_seq_lens"], {"torch": torch})
    stand_in("vllm.v1.attention.backends.utils", PAD_SLOT_ID=-1, **lens)
    stand_in("vllm.v1.worker.gpu.block_table", BlockTables=BlockTables)
    found = ("v1.worker.gpu.pcp_manager", "v1.worker.gpu.input_batch", "v1.attention.ops.pcp")
    pcp_manager, input_batch, pcp = (import_module(f"vllm.{name}") for name in found)
    return pcp_manager, input_batch, pcp, CUDAGraphMode


class Group:
    """A group of which every rank's parts are recorded in a first turn and replayed in a second."""

    def __init__(self, size: int, parts: list[torch.Tensor] | None) -> None:
        self.world_size, self.parts, self.at = size, parts, 0
        self.sent: list[torch.Tensor] = []

    def all_gather(self, part: torch.Tensor, dim: int) -> torch.Tensor:
        self.sent.append(part.clone())
        if self.parts is None:
            return torch.cat([part] * self.world_size, dim)
        self.at += 1
        return self.parts[self.at - 1]


def rows_of(count: int) -> torch.Tensor:
    return ((torch.arange(count * WIDTH) % 251) + 1).view(count, WIDTH).to(torch.bfloat16)


def table_of(extend: list[int], prefix: list[int], dcp: int) -> torch.Tensor:
    need = [max(-(-(new + old) // (PAGE * dcp)), 1) for new, old in zip(extend, prefix, strict=True)]
    table, at = torch.zeros(len(extend), max(need), dtype=torch.int32), 1
    for request, count in enumerate(need):
        table[request, :count] = torch.arange(at, at + count).int()
        at += count
    return table


def own_slots(table: torch.Tensor, extend: list[int], prefix: list[int], dcp: int, rank: int) -> torch.Tensor:
    """Return the slot of each row in this rank's part of the cache, -1 where another rank has it."""
    found = []
    for request, (new, old) in enumerate(zip(extend, prefix, strict=True)):
        position = torch.arange(old, old + new)
        page, inside = table[request, position // (PAGE * dcp)].long(), position % (PAGE * dcp)
        found.append(torch.where(inside % dcp == rank, page * PAGE + inside // dcp, -1))
    return torch.cat(found)


def partitioned(real: Any, case: Any, rank: int, table: torch.Tensor) -> tuple[Any, Any]:
    """Return a rank's manager and its local batch."""
    _, cp_size, extend, prefix, decodes, dcp, graph = case
    pcp_manager, input_batch, _, mode = real
    count, tokens = len(extend), sum(extend)
    manager = pcp_manager.PCPManager(
        cp_size,
        rank,
        torch.device("cpu"),
        dcp == 1,
        max_num_reqs=count + 1,
        max_num_tokens=max(tokens, graph or 0) + 8,
        block_tables=BlockTables(table),
        dcp_world_size=dcp,
    )
    lens, starts = np.array(extend, dtype=np.int32), np.concatenate([[0], np.cumsum(extend)]).astype(np.int32)
    is_decode = np.array([request in decodes for request in range(count)])
    whole = np.array(prefix, dtype=np.int32) + np.where(is_decode, 0, lens).astype(np.int32)
    seq = torch.tensor([new + old for new, old in zip(extend, prefix, strict=True)], dtype=torch.int32)
    values: dict[str, Any] = {
        "req_ids": [f"r{request}" for request in range(count)],
        "num_reqs": count,
        "num_reqs_after_padding": count,
        "idx_mapping": torch.arange(count),
        "idx_mapping_np": np.arange(count),
        "expanded_idx_mapping": torch.arange(count),
        "expanded_local_pos": torch.zeros(count, dtype=torch.int32),
        "num_scheduled_tokens": lens,
        "num_tokens": tokens,
        "num_tokens_after_padding": tokens,
        "num_draft_tokens": 0,
        "num_draft_tokens_per_req": None,
        "query_start_loc": torch.from_numpy(starts),
        "query_start_loc_np": starts,
        "seq_lens": seq,
        "seq_lens_cpu_upper_bound": seq,
        "dcp_local_seq_lens": None,
        "num_computed_tokens_np": np.array(prefix, dtype=np.int32),
        "prefill_len_np": whole,
        "num_computed_prefill_tokens_np": np.minimum(np.array(prefix), whole),
        "is_prefilling_np": ~is_decode,
        "has_prefill": not bool(is_decode.all()),
        "decode_graph_eligible": False,
        "input_ids": torch.arange(tokens, dtype=torch.int32) + 1,
        "positions": torch.cat([torch.arange(old, old + new) for new, old in zip(extend, prefix, strict=True)]),
        "is_padding": torch.zeros(tokens, dtype=torch.bool),
        "logits_indices": torch.zeros(0),
        "cu_num_logits": torch.zeros(0),
        "cu_num_logits_np": np.zeros(0),
        "has_structured_output_reqs": False,
        "prompt_lens": None,
    }
    step = types.SimpleNamespace(cg_mode=mode.PIECEWISE if graph else mode.NONE, num_tokens=graph, num_reqs=None)
    return manager, manager.partition_batch(input_batch.InputBatch(**values), step)


def recorded(real: Any, case: Any) -> dict[str, object]:
    """Return one batch on all ranks."""
    name, cp_size, extend, prefix, decodes, dcp, graph = case
    table, kv, shards = table_of(extend, prefix, dcp), rows_of(sum(extend)), dcp == 1
    ranks, sent = [], []
    for rank in range(cp_size):
        manager, local = partitioned(real, case, rank, table)
        rows = manager._padded_gather_idx.view(cp_size, -1)[rank][: local.num_tokens]
        shard = torch.full((local.num_tokens_after_padding, WIDTH), 7.0, dtype=torch.bfloat16)
        shard[: len(rows)] = kv[rows]
        _, slots = manager.prepare_attn(local)
        mapping = slots[0].clone()
        sequence = manager._global_batch_slot_mappings[0, : sum(extend)].clone()
        if dcp > 1:
            sequence = own_slots(table, extend, prefix, dcp, rank % dcp)
            mapping = torch.where(manager._gathered_kv_write_mask, sequence[manager._padded_gather_idx], -1)
        ranks.append((manager, local, rows, shard, mapping, sequence))
    count = 0 if shards else len(decodes)

    def gathered(rank: int, group: Group) -> Any:
        shard, mapping = ranks[rank][3], ranks[rank][4]
        GROUP[0] = group
        latent, rope = shard[:, :LATENT].contiguous(), shard[:, LATENT:].contiguous().unsqueeze(1)
        return real[2].maybe_gather_mla_latent_cache_inputs(latent, rope, mapping, count, True, shards)

    for rank in range(cp_size):
        group = Group(cp_size, None)
        gathered(rank, group)
        sent.append(group.sent)
    parts = [torch.cat(list(one)) for one in zip(*sent, strict=True)]
    found = []
    for rank, (manager, local, rows, shard, mapping, sequence) in enumerate(ranks):
        latent, rope, cache_slots = gathered(rank, Group(cp_size, parts))
        segments = manager._get_rank_segments(
            rank,
            np.array(extend, dtype=np.int32),
            np.array([request not in decodes for request in range(len(extend))]),
            np.concatenate([[0], np.cumsum(extend)]).astype(np.int32),
        )
        starts = np.concatenate([[0], np.cumsum(extend)])
        found.append(
            {
                "segments": [
                    [
                        int(one.global_batch_req_idx),
                        int(one.global_batch_slice.start - starts[one.global_batch_req_idx]),
                        int(one.global_batch_slice.stop - starts[one.global_batch_req_idx]),
                    ]
                    for one in segments
                ],
                "rows": rows.tolist(),
                "num_tokens_after_padding": int(local.num_tokens_after_padding),
                "positions": local.positions.tolist(),
                "shard": shard.to(torch.int64).tolist(),
                "gathered_slot_mapping": mapping.tolist(),
                "slot_mapping": sequence.tolist(),
                "cache_latent": latent.to(torch.int64).tolist(),
                "cache_rope": rope.to(torch.int64).tolist(),
                "cache_slots": cache_slots.tolist(),
                "padded_gather_idx": manager._padded_gather_idx.tolist(),
                "hidden_restore_idx": manager._hidden_restore_idx.tolist(),
                "write_mask": manager._gathered_kv_write_mask.tolist(),
            }
        )
    return {
        "name": name,
        "cp_size": cp_size,
        "extend_lens": extend,
        "prefix_lens": prefix,
        "decodes": decodes,
        "dcp_size": dcp,
        "graph_rows": graph,
        "page_table": table.tolist(),
        "ranks": found,
    }


def main() -> None:
    real = load(Path(sys.argv[1]))
    about = {"vllm": VERSION, "torch": torch.__version__, "latent": LATENT, "rope": ROPE, "page_size": PAGE}
    cases = [recorded(real, case) for case in CASES]
    Path(sys.argv[2]).write_text(json.dumps({"about": about, "cases": cases}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
