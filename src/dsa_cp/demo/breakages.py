"""Known wrong orders of the path, to be run on purpose: placements and index tensors that an untyped engine may build.

Each lies to the type checker with `brand`, where an engine has no types to lie to. The first three are the stages of
sgl-project/sglang#29161: a crash, then GSM8K at 30 % and 0 %.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dsa_contracts import CpBatch, brand
from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.dsa.row_formats import bf16_format
from dsa_contracts.dsa.states import PackedRowStride
from dsa_cp.demo.run import AnyLayer, Job
from dsa_cp.layer.cache import AnyCache
from dsa_cp.layer.delivery import GatherThenWrite
from dsa_cp.layer.inputs import LayerInputs
from dsa_cp.layer.local_batch import LocalBatch
from dsa_cp.layer.local_rows import rotated_k
from dsa_cp.layer.setting import Setting, rank_major_loc
from dsa_cp.layouts import Interleave, Zigzag, build_batch

Anything = Any
"""A breakage stands outside the types on purpose."""


@dataclass(frozen=True)
class Breakage:
    """One wrong order.

    Attributes:
        name: what `--break` takes.
        what: what is wrong, in a line.
        source: the public report it comes from.
        amend: makes a layer wrong.
    """

    name: str
    what: str
    source: str
    amend: Callable[[AnyLayer], AnyLayer]

    def apply(self, job: Job) -> Job:
        """Return a job whose layers are wrong."""
        return replace(job, amend=self.amend)


def _placed(place: Anything) -> Callable[[AnyLayer], AnyLayer]:
    """Return a function that gives a layer another placement."""
    return lambda layer: replace(layer, route=replace(layer.route, place=place))


def _localised(
    make: Callable[[LocalBatch[Any, Any], CpBatch[Any]], LocalBatch[Any, Any]],
) -> Callable[[AnyLayer], AnyLayer]:
    """Return a function that gives a layer other index tensors for a rank's rows."""

    def amend(layer: AnyLayer) -> AnyLayer:
        setting = layer.setting
        return replace(layer, setting=replace(setting, local=make(setting.local, setting.batch)))

    return amend


def _fused(inputs: LayerInputs[Any, Any], setting: Setting[Any, Any], k_nope: Tensor, k_rope: Tensor) -> Anything:
    """Call the fused stage with this rank's queries and positions, and the K that is given."""
    return setting.kernels.rope_quantize(
        inputs.q_nope,
        inputs.q_rope,
        brand(k_nope),
        brand(k_rope),
        setting.local.positions,
        setting.cos_sin_cache,
        setting.model.rope_style,
        setting.quant_scale,
        setting.quant_scale,
        setting.batch,
    )


def _gather_early(
    inputs: LayerInputs[Any, Any], index_kv: Anything, setting: Setting[Any, Any], cache: AnyCache, delivery: GatherThenWrite
) -> Anything:
    """Gather raw K, then fused RoPE of it with this rank's positions: one step too early."""
    ops, model, batch = setting.kernels, setting.model, setting.batch
    wire = bf16_format(model.kv_lora_rank, model.qk_rope_head_dim)
    raw = ops.pack_kv(inputs.k_nope, inputs.k_rope, wire, batch)
    restored = ops.restore_order(delivery.gather(raw, wire, index_kv, setting, cache), batch)
    q, kv = _fused(inputs, setting, *ops.split_kv(restored, wire, PackedRowStride, batch))
    delivery.write(brand(kv), setting.out_cache_loc, setting, cache)
    return q


def _rank_major(
    inputs: LayerInputs[Any, Any], index_kv: Anything, setting: Setting[Any, Any], cache: AnyCache, delivery: GatherThenWrite
) -> Anything:
    """Gather after the fused stage, drop the padding, and write in rank-major order to slots in sequence order."""
    batch = setting.batch
    q, kv = _fused(inputs, setting, inputs.k_nope, inputs.k_rope)
    gathered = delivery.gather(kv, cache.formats.kv, index_kv, setting, cache)
    if gathered.shape[0] != batch.nnz:
        gathered = brand(gathered[batch.gathered_rows >= 0])
    delivery.write(brand(gathered), setting.out_cache_loc, setting, cache)
    return q


def _other_layout(
    inputs: LayerInputs[Any, Any], index_kv: Anything, setting: Setting[Any, Any], cache: AnyCache, delivery: GatherThenWrite
) -> Anything:
    """Gather one layout's shards, and write them to the slots of the other layout's rank-major order."""
    batch = setting.batch
    other = Zigzag() if isinstance(batch.layout, Interleave) else Interleave()
    wrong: CpBatch[Any] = build_batch(
        other,
        batch.cp_size,
        batch.cp_rank,
        batch.extend_lens,
        batch.prefix_lens,
        out_cache_loc=batch.out_cache_loc,
        page_table=batch.page_table,
        page_size=batch.page_size,
    )
    q, kv = _fused(inputs, setting, inputs.k_nope, inputs.k_rope)
    gathered = delivery.gather(kv, cache.formats.kv, index_kv, setting, cache)
    loc = rank_major_loc(wrong)
    count = min(gathered.shape[0], loc.shape[0])
    if gathered.shape[0] != loc.shape[0]:
        gathered, loc = brand(gathered[:count]), brand(loc[:count])
    delivery.write(gathered, loc, setting, cache)
    return q


def _rope_twice(
    inputs: LayerInputs[Any, Any], index_kv: Anything, setting: Setting[Any, Any], cache: AnyCache, delivery: GatherThenWrite
) -> Anything:
    """Apply RoPE to K in the model although the backend rotates inside."""
    q, kv = _fused(inputs, setting, inputs.k_nope, rotated_k(inputs, setting))
    delivery.deliver(brand(kv), index_kv, setting, cache)
    return q


def _identity_lens(local: LocalBatch[Any, Any], batch: CpBatch[Any]) -> LocalBatch[Any, Any]:
    """Take the first lengths of the batch for this rank's rows, instead of those of its rows."""
    return replace(local, causal_lens=brand(batch.causal_lens[: local.rows.shape[0]]))


def _rank_positions(local: LocalBatch[Any, Any], batch: CpBatch[Any]) -> LocalBatch[Any, Any]:
    """Count positions from 0 on every rank."""
    return replace(local, positions=brand(torch.arange(local.rows.shape[0], device=batch.device)))


_SGLANG = "sgl-project/sglang#29161"

BREAKAGES: dict[str, Breakage] = {
    breakage.name: breakage
    for breakage in (
        Breakage("gather-early", "K is gathered before the fused RoPE", _SGLANG, _placed(_gather_early)),
        Breakage("rank-major-order", "gathered rows are not restored to sequence order", _SGLANG, _placed(_rank_major)),
        Breakage("identity-lens", "per-row lengths are not in local order", _SGLANG, _localised(_identity_lens)),
        Breakage(
            "rank-positions",
            "positions are counted from 0 on every rank",
            "sgl-project/sglang#29721",
            _localised(_rank_positions),
        ),
        Breakage(
            "other-layout",
            "gathered rows are taken for those of the other layout",
            "vllm-project/vllm#56715 (same kind)",
            _placed(_other_layout),
        ),
        Breakage("rope-twice", "K is rotated before the fused RoPE", "sgl-project/sglang#32098", _placed(_rope_twice)),
    )
}


def breakage_by_name(name: str) -> Breakage:
    """Return a breakage; raises ArgumentError DSA602 naming those there are."""
    if name not in BREAKAGES:
        raise ArgumentError(f"--break {name!r} is not known; known are {', '.join(BREAKAGES)}, and list")
    return BREAKAGES[name]
