"""Seeded inputs of a layer: what the projections would hand to the attention path."""

from dataclasses import dataclass, fields
from typing import Any, Generic

import torch
from torch import Tensor

from dsa_contracts import CpBatch, declare, declare_lasting
from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.core.marks import Plain
from dsa_contracts.core.tensors import spec_of
from dsa_contracts.dsa.aliases import CosSinCache, IndexKey, IndexQuery, IndexWeights, KNope, KRope, QNope, QRope
from dsa_contracts.dsa.states import Local, Raw, Table
from dsa_contracts.dsa.typevars import L, N
from dsa_cp.layer.local_batch import LocalBatch
from dsa_cp.layer.models import ModelDims
from dsa_cp.numerics.rotation import cos_sin_table


@dataclass(frozen=True)
class LayerInputs(Generic[L, N]):
    """Rows of one layer on one rank, in local order, before RoPE.

    Attributes:
        q_nope: absorbed latent queries.
        q_rope: rope part of the queries.
        k_nope: KV latent.
        k_rope: rope part of the key.
        q_index: indexer queries.
        k_index: indexer key.
        head_weights: weight of each indexer head.
    """

    q_nope: QNope[L, N]
    q_rope: QRope[L, Raw, N]
    k_nope: KNope[Local[L], N]
    k_rope: KRope[Local[L], Raw, N]
    q_index: IndexQuery[L, Raw, N]
    k_index: IndexKey[Local[L], Raw, N]
    head_weights: IndexWeights[L, N]


def declare_inputs(batch: CpBatch[L], producer: str = "projection", /, **rows: Tensor) -> LayerInputs[L, Any]:
    """Return what projections have made as a layer's inputs: each tensor says which rows it holds; nothing is copied.

    Args:
        batch: the batch.
        producer: who made them, for messages.
        rows: a tensor for each attribute of `LayerInputs`, this rank's rows in local order.

    Raises:
        ArgumentError: DSA602, a tensor is missing, or there is no attribute of its name.
    """
    specs = {item.name: spec_of(item.type) for item in fields(LayerInputs)}
    wrong = sorted(specs.keys() ^ rows.keys())
    if wrong:
        what = "is missing" if wrong[0] in specs else "is no input"
        raise ArgumentError(f"{wrong[0]} {what}; a layer takes {', '.join(specs)}")
    made: dict[str, Any] = {}
    for name, spec in specs.items():
        if spec is not None:
            made[name] = declare(rows[name], spec.rows, spec.state, batch, producer)
    return LayerInputs(**made)


@dataclass(frozen=True)
class GlobalDraw:
    """One draw for all rows of a batch and layer, in sequence order; ranks take their rows from it.

    Attributes:
        q: bf16 [nnz, heads, kv_lora_rank + qk_rope_head_dim].
        latent: bf16 [nnz, kv_lora_rank + qk_rope_head_dim], as a projection leaves it: the parts are column slices.
        q_index: bf16 [nnz, index heads, index_head_dim].
        k_index: bf16 [nnz, index_head_dim].
        head_weights: float32 [nnz, index heads].
    """

    q: Tensor
    latent: Tensor
    q_index: Tensor
    k_index: Tensor
    head_weights: Tensor


def draw(model: ModelDims, nnz: int, seed: int, batch_index: int, layer: int, device: torch.device) -> GlobalDraw:
    """Return the draw of one batch and layer; the same arguments give the same values on every rank."""
    # Drawn where it is used: a host takes seconds for what a GPU does at once. Only devices of one kind draw alike.
    place = device if device.type == "cuda" else torch.device("cpu")
    generator = torch.Generator(place).manual_seed((seed * 1_000_003 + batch_index) * 1_009 + layer)
    width = model.kv_lora_rank + model.qk_rope_head_dim

    def normal(*shape: int) -> Tensor:
        return torch.randn(nnz, *shape, generator=generator, device=place)

    return GlobalDraw(
        normal(model.num_heads, width).bfloat16().to(device),
        normal(width).bfloat16().to(device),
        normal(model.num_index_heads, model.index_head_dim).bfloat16().to(device),
        normal(model.index_head_dim).bfloat16().to(device),
        normal(model.num_index_heads).to(device),
    )


def shard_inputs(drawn: GlobalDraw, model: ModelDims, local: LocalBatch[L, N], batch: CpBatch[L]) -> LayerInputs[L, N]:
    """Return this rank's rows of a draw; padding rows hold NaN, so that a use of one shows.

    The parts of q and of the latent are column slices with a row stride, as an engine's projections leave them.
    """
    rows = local.rows
    real = rows >= 0

    def take(values: Tensor) -> Tensor:
        taken = values[rows.clamp(min=0)]
        taken[~real] = float("nan")
        return taken

    rank = model.kv_lora_rank
    q, latent = take(drawn.q), take(drawn.latent)
    return declare_inputs(
        batch,
        "inputs",
        q_nope=q[..., :rank],
        q_rope=q[..., rank:],
        k_nope=latent[:, :rank],
        k_rope=latent[:, rank:],
        q_index=take(drawn.q_index),
        k_index=take(drawn.k_index),
        head_weights=take(drawn.head_weights),
    )


def cos_sin_cache(model: ModelDims, num_positions: int, device: torch.device) -> CosSinCache:
    """Return the model's cos/sin table for positions 0 to num_positions - 1."""
    table = cos_sin_table(num_positions, model.qk_rope_head_dim, model.rope_theta).to(device)
    return declare_lasting(table, Table, Plain, f"cos_sin_cache of model {model.name}")
