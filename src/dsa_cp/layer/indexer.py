"""The lightning indexer under CP: its keys go the way of KV rows, its queries stay local."""

from dsa_contracts.dsa.aliases import DenseKvRows, TopkIndices
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.states import Local, Rotated
from dsa_contracts.dsa.typevars import FI, ND, NDI, RD, RDI, F, L, N
from dsa_cp.layer.cache import LayerCache
from dsa_cp.layer.inputs import LayerInputs
from dsa_cp.layer.setting import Setting


def index_rows(
    inputs: LayerInputs[L, N], setting: Setting[L, N], row_format: RowFormat[F, ND, RD]
) -> DenseKvRows[Local[L], F, Rotated, N]:
    """Return this rank's packed rows of the indexer: its keys, rotated."""
    ops, model, batch = setting.kernels, setting.model, setting.batch
    table, width, style = setting.cos_sin_cache, model.qk_rope_head_dim, model.index_rope_style
    k_index = ops.apply_rope(inputs.k_index, setting.local.positions, table, width, style, batch)
    return ops.pack_index_key(k_index, row_format, batch)


def choose_keys(
    inputs: LayerInputs[L, N], setting: Setting[L, N], cache: LayerCache[F, ND, RD, FI, NDI, RDI]
) -> TopkIndices[L, N]:
    """Return the keys that each local row attends to; the indexer's rows of all ranks must stand in the cache."""
    ops, model, batch, local = setting.kernels, setting.model, setting.batch, setting.local
    table, width, style = setting.cos_sin_cache, model.qk_rope_head_dim, model.index_rope_style
    return ops.select_topk(
        ops.apply_rope(inputs.q_index, local.positions, table, width, style, batch),
        inputs.head_weights,
        cache.index,
        local.causal_lens,
        local.request_of_row,
        setting.page_table,
        model.index_topk,
        cache.formats.index,
        batch,
    )
