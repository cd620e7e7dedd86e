"""One layer of the attention path on one rank: place K and the indexer's keys, choose keys, attend."""

from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from dsa_contracts.core.marks import DType
from dsa_contracts.dsa.aliases import AttentionLse, AttentionOut
from dsa_contracts.dsa.typevars import AD, FI, ND, NDI, QD, RD, RDI, F, L, N
from dsa_cp.layer.cache import AnyCache, LayerCache
from dsa_cp.layer.indexer import choose_keys, index_rows
from dsa_cp.layer.inputs import LayerInputs
from dsa_cp.layer.placements import DeliveryType, Route
from dsa_cp.layer.setting import Setting

OtherType = TypeVar("OtherType", bound=DType)


@dataclass(frozen=True)
class LayerOutput(Generic[L, N, AD]):
    """What a layer's attention returns on one rank, in local row order."""

    out: AttentionOut[L, AD, N]
    lse: AttentionLse[L, N]


def run_layer(
    inputs: LayerInputs[L, N],
    setting: Setting[L, N],
    cache: LayerCache[F, ND, RD, FI, NDI, RDI],
    route: Route[DeliveryType, F, ND, RD, QD],
    out_dtype: type[AD],
) -> LayerOutput[L, N, AD]:
    """Run one layer on one rank; the batch's rows of all ranks stand in the KV cache after it.

    Args:
        inputs: this rank's rows of the layer.
        setting: what the layer runs with.
        cache: this rank's KV cache of the layer.
        route: K's way into it.
        out_dtype: dtype of the output.

    Sync: one collective where rows go straight into the pools of all ranks, else two.
    """
    index_kv = index_rows(inputs, setting, cache.formats.index)
    q = route.place(inputs, index_kv, setting, cache, route.delivery)
    topk = choose_keys(inputs, setting, cache)
    # A stored value is code * scale: what the cast has multiplied, `attend` divides.
    scale = 1.0 / setting.quant_scale
    out, lse = setting.kernels.attend(
        q,
        cache.kv,
        topk,
        setting.local.causal_lens,
        setting.local.request_of_row,
        setting.page_table,
        setting.model.softmax_scale,
        scale,
        scale,
        out_dtype,
        cache.formats.kv,
        setting.batch,
    )
    return LayerOutput(out, lse)


@dataclass(frozen=True)
class AttentionLayer(Generic[L, N, AD]):
    """The attention path of every layer for one batch on one rank; `dsa_cp.planner.attention_layer` makes it.

    Attributes:
        setting: what every layer of the batch runs with.
        route: K's way into the KV cache.
        out_dtype: dtype of the output.
    """

    setting: Setting[L, N]
    route: Route[Any, Any, Any, Any, Any]
    out_dtype: type[AD]

    def __call__(self, inputs: LayerInputs[L, N], kv_cache: AnyCache, layer_index: int) -> LayerOutput[L, N, AD]:
        """Run one layer; see `run_layer`.

        Args:
            inputs: this rank's rows of the layer, as `declare_inputs` returns them.
            kv_cache: this rank's KV cache of the layer.
            layer_index: the layer, for messages.
        """
        setting = replace(self.setting, batch=self.setting.batch.at_layer(layer_index))
        return run_layer(inputs, setting, kv_cache, self.route, self.out_dtype)

    def returning(self, dtype: type[OtherType]) -> "AttentionLayer[L, N, OtherType]":
        """Return the same layer with outputs of another dtype."""
        return AttentionLayer(self.setting, self.route, dtype)
