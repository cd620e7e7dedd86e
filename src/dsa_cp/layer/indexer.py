"""The lightning indexer under CP: its keys go the way of KV rows, its queries stay local."""

from dsa_contracts import Ten
from dsa_contracts.core.marks import U8, Contiguous
from dsa_contracts.dsa.aliases import PageTable, TopkIndices
from dsa_contracts.dsa.dims import NumPages, PageSize, RowBytes
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.states import Packed, Pool, Rotated
from dsa_contracts.dsa.typevars import ND, RD, F, L, N
from dsa_cp.layer.inputs import LayerInputs
from dsa_cp.layer.placements import rank_major_loc
from dsa_cp.layer.setting import Setting


def choose_keys(
    inputs: LayerInputs[L, N],
    setting: Setting[L, N],
    pool: Ten[Pool, Packed[F, Rotated], U8, Contiguous, NumPages, PageSize, RowBytes],
    row_format: RowFormat[F, ND, RD],
    page_table: PageTable,
    *,
    gathers_into_pool: bool = False,
) -> TopkIndices[L, N]:
    """Return the keys that each local row attends to; the indexer keys of all ranks stand in `pool` after the call.

    Args:
        inputs: this rank's rows of the layer.
        setting: what the layer runs with.
        pool: the indexer's pool of the layer.
        row_format: its row format.
        page_table: pages of each request.
        gathers_into_pool: whether keys go straight into the pools of all ranks, as KV rows then do.

    Sync: one collective.
    """
    ops = setting.kernels
    model, batch, local = setting.model, setting.batch, setting.local
    table, width, style = setting.cos_sin_cache, model.qk_rope_head_dim, model.index_rope_style
    k_index = ops.apply_rope(inputs.k_index, local.positions, table, width, style, batch)
    packed = ops.pack_index_key(k_index, row_format, batch)
    if gathers_into_pool:
        ops.gather_write_kv(pool, packed, rank_major_loc(batch), row_format, batch, setting.comm)
    else:
        gathered = ops.all_gather_kv(packed, row_format, batch, setting.comm)
        ops.write_kv(pool, gathered, rank_major_loc(batch), row_format, batch)
    return ops.select_topk(
        ops.apply_rope(inputs.q_index, local.positions, table, width, style, batch),
        inputs.head_weights,
        pool,
        local.causal_lens,
        local.request_of_row,
        page_table,
        model.index_topk,
        row_format,
        batch,
    )
