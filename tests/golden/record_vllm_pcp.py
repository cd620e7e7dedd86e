"""Records `vllm-0.33-pcp.json` from the real PCPManager of the vLLM 0.33.0 wheel, on the CPU; no part of vLLM is copied.

    pip download vllm==0.33.0 --no-deps -d wheel && unzip wheel/*.whl vllm/v1/worker/gpu/pcp_manager.py -d unpacked
    python tests/golden/record_vllm_pcp.py unpacked

Only pcp_manager.py is loaded; what it imports from vLLM is stood in for, as none of it takes part in the cut:
`_build_batch_layout`, `_get_rank_segments` and `_convert_to_gathered_slot_mappings` run as they are.
"""

import importlib.util
import json
import logging
import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

VERSION = "0.33.0"
PAD_SLOT = -1
HAND_WRITTEN: list[tuple[int, list[int], list[int]]] = [
    # cp_size, new tokens of each request, requests that are decodes
    (2, [7], []),
    (2, [1], []),
    (2, [9], []),
    (2, [4, 1, 4], []),
    (4, [3, 30, 1], []),
    (2, [1], [0]),
    (2, [4, 1], [1]),
    (2, [4, 1, 1], [1, 2]),
    (2, [1, 4, 1, 7, 1], [0, 2, 4]),
    (3, [1, 1, 1, 1], [0, 1, 2, 3]),
    (4, [1, 64, 1], [0, 2]),
    (8, [1, 1, 200, 5], [0, 1]),
]


def stand_in(name: str, **attributes: object) -> None:
    """Put a module of this name in the place of vLLM's."""
    module = ModuleType(name)
    module.__path__ = []
    for key, value in attributes.items():
        setattr(module, key, value)
    sys.modules[name] = module


def load(root: Path) -> Any:
    """Return the module pcp_manager of the unpacked wheel."""
    for name in (
        "vllm",
        "vllm.v1",
        "vllm.v1.attention",
        "vllm.v1.attention.backends",
        "vllm.v1.worker",
        "vllm.v1.worker.gpu",
    ):
        stand_in(name)
    for name in ("vllm.distributed", "vllm.utils"):
        stand_in(name)
    stand_in("vllm.config", CUDAGraphMode=None, VllmConfig=object)
    stand_in("vllm.distributed.parallel_state", get_dcp_group=None, get_pcp_group=None)
    stand_in("vllm.logger", init_logger=logging.getLogger)
    stand_in("vllm.utils.torch_utils", async_tensor_h2d=lambda array, device: torch.from_numpy(array))
    stand_in("vllm.v1.attention.backends.utils", PAD_SLOT_ID=PAD_SLOT, get_dcp_local_seq_lens=None)
    stand_in("vllm.v1.worker.gpu.block_table", BlockTables=object)
    stand_in("vllm.v1.worker.gpu.input_batch", InputBatch=object, InputBuffers=object)
    path = root / "vllm/v1/worker/gpu/pcp_manager.py"
    spec = importlib.util.spec_from_file_location("vllm.v1.worker.gpu.pcp_manager", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def record(manager_of: Any, cp_size: int, extend: list[int], decodes: list[int], dcp: int, graph: int) -> dict[str, object]:
    """Return one case: what the manager makes of a batch; a graph of 0 is no padded size."""
    is_prefilling = np.array([request not in decodes for request in range(len(extend))])
    lens = np.array(extend, dtype=np.int32)
    starts = np.concatenate([[0], np.cumsum(lens)]).astype(np.int32)
    manager = manager_of(cp_size, 0, torch.device("cpu"), dcp == 1, dcp_world_size=dcp)
    size = manager.get_num_tokens_for_dispatch(lens, is_prefilling) + graph if graph else None
    args = (lens, np.zeros(len(extend), dtype=np.int32), is_prefilling, starts, size)
    segments, counts = manager._build_batch_layout(*args)
    slots = manager._convert_to_gathered_slot_mappings(torch.arange(100, 100 + sum(extend)).unsqueeze(0))
    return {
        "cp_size": cp_size,
        "dcp_world_size": dcp,
        "extend_lens": extend,
        "decodes": decodes,
        "padded_num_tokens": size,
        "rank_rows": [
            [row for each in rank for row in range(each.global_batch_slice.start, each.global_batch_slice.stop)]
            for rank in segments
        ],
        "rank_num_tokens": [int(count) for count in counts],
        "padded_gather_idx": manager._padded_gather_idx.tolist(),
        "hidden_restore_idx": manager._hidden_restore_idx.tolist(),
        "gathered_slot_mapping": slots[0].tolist(),
    }


def batches() -> list[tuple[int, list[int], list[int]]]:
    """Return the hand-written batches and 40 random ones, in a fixed order."""
    draw = random.Random(20261201)
    found = list(HAND_WRITTEN)
    for _ in range(40):
        cp_size = draw.randint(2, 8)
        decodes = [request for request in range(draw.randint(1, 6)) if draw.random() < 0.4]
        count = max([*decodes, draw.randint(0, 3)]) + 1
        found.append(
            (cp_size, [1 if each in decodes else draw.randint(1, draw.choice([4, 40])) for each in range(count)], decodes)
        )
    return found


def main() -> None:
    """Write the file beside this script."""
    manager_of = load(Path(sys.argv[1])).PCPManager
    cases = [
        record(manager_of, cp_size, extend, decodes, dcp, graph)
        for cp_size, extend, decodes in batches()
        for dcp, graph in ((1, 0), (1, 3), (cp_size, 0))
    ]
    about = {
        "vllm": VERSION,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "from": "PCPManager, vllm/v1/worker/gpu/pcp_manager.py",
    }
    target = Path(__file__).with_name("vllm-0.33-pcp.json")
    target.write_text(json.dumps({"about": about, "cases": cases}, separators=(",", ":"), sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
