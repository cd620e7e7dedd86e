"""A kernel of one's own under the contract of its stage: the lines of the README run in a layer."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from dsa_contracts import checking_values
from dsa_contracts.core.errors import StageOutputError
from dsa_cp.comm import SimulatedGroup
from dsa_cp.layer import TorchKernels, declare_inputs, new_cache
from dsa_cp.layer.inputs import draw
from dsa_cp.layer.models import MODELS
from dsa_cp.layouts import Interleave, build_batch
from dsa_cp.planner import attention_layer, cache_formats, make_plan
from dsa_cp.tools.stage_table import ROOT

MODEL = MODELS["tiny"]
SLOTS = torch.tensor([64, 65, 66])
WriteRows = Callable[[Tensor, Tensor, Tensor], None]


def kernels_of_the_readme(my_kernel: WriteRows) -> Any:
    """The kernel set that the README makes, around this kernel."""
    blocks = [part.partition("```")[0] for part in (ROOT / "README.md").read_text(encoding="utf-8").split("```python\n")]
    (lines,) = [block for block in blocks if "class MyKernels" in block]
    given: dict[str, Any] = {"my_kernel": my_kernel}
    exec(compile(lines, "README.md", "exec"), given)
    return given["MyKernels"]


def cache_after_a_layer(kernels: Any) -> Tensor:
    """Run one layer of three tokens on one rank; return its KV rows."""
    plan = make_plan("trtllm", "fp8", cp_size=1)
    pages = torch.tensor([[1]], dtype=torch.int32)
    batch = build_batch(Interleave(), 1, 0, [3], out_cache_loc=SLOTS, page_table=pages)
    cache = new_cache(cache_formats(plan, MODEL), 2, 64, layer=0)
    drawn, rank = draw(MODEL, 3, 0, 0, 0, torch.device("cpu")), MODEL.kv_lora_rank
    halves = {"q_nope": drawn.q[..., :rank], "q_rope": drawn.q[..., rank:]}
    halves |= {"k_nope": drawn.latent[:, :rank], "k_rope": drawn.latent[:, rank:]}
    inputs = declare_inputs(batch, **halves, q_index=drawn.q_index, k_index=drawn.k_index, head_weights=drawn.head_weights)
    layer: Any = attention_layer(batch, MODEL, plan, SimulatedGroup(1).comm(0), kernels)
    layer(inputs, cache, 0)
    kv: Tensor = cache.kv
    return kv


def write_rows(pool: Tensor, kv: Tensor, loc: Tensor) -> None:
    """Write each row into its slot."""
    pool.view(-1, pool.shape[-1])[loc] = kv


def test_a_kernel_of_ones_own_leaves_the_bytes_of_the_reference() -> None:
    calls = []

    def my_kernel(pool: Tensor, kv: Tensor, loc: Tensor) -> None:
        calls.append(len(kv))
        write_rows(pool, kv, loc)

    assert torch.equal(cache_after_a_layer(kernels_of_the_readme(my_kernel)), cache_after_a_layer(TorchKernels))
    assert calls == [3, 3]  # the indexer's rows, then K's


def test_what_a_kernel_of_ones_own_does_wrong_is_refused_under_the_contract_of_its_stage() -> None:
    def one_slot_on(pool: Tensor, kv: Tensor, loc: Tensor) -> None:
        write_rows(pool, kv, loc + 1)

    with checking_values(), pytest.raises(StageOutputError, match="DSA116: write_kv: "):
        cache_after_a_layer(kernels_of_the_readme(one_slot_on))
