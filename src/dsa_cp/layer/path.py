"""One layer of the attention path on one rank: choose keys, place K, attend. What differs between plans is in `wiring`."""

from dataclasses import dataclass
from typing import Generic

from dsa_contracts import Ten, brand
from dsa_contracts.core.marks import F32, U8, Contiguous, Plain
from dsa_contracts.dsa.aliases import PageTable
from dsa_contracts.dsa.dims import KvLoraRank, NumLocalHeads, NumPages, PageSize, RowBytes
from dsa_contracts.dsa.states import Local, Packed, Pool, Rotated
from dsa_contracts.dsa.typevars import ND, QD, RD, F, L, N
from dsa_cp.layer.indexer import choose_keys
from dsa_cp.layer.inputs import LayerInputs
from dsa_cp.layer.setting import Setting
from dsa_cp.layer.wiring import IndexMark, Wiring


@dataclass(frozen=True)
class LayerPools(Generic[F]):
    """The pools of one layer on one rank: KV rows and the indexer's rows, bytes [num_pages, page_size, row_bytes]."""

    kv: Ten[Pool, Packed[F, Rotated], U8, Contiguous, NumPages, PageSize, RowBytes]
    index: Ten[Pool, Packed[IndexMark, Rotated], U8, Contiguous, NumPages, PageSize, RowBytes]


@dataclass(frozen=True)
class LayerOutput(Generic[L, N]):
    """What a layer's attention returns on one rank, in local row order."""

    out: Ten[Local[L], Plain, F32, Contiguous, N, NumLocalHeads, KvLoraRank]
    lse: Ten[Local[L], Plain, F32, Contiguous, N, NumLocalHeads]


def run_layer(
    inputs: LayerInputs[L, N], setting: Setting[L, N], pools: LayerPools[F], wiring: Wiring[F, ND, RD, QD]
) -> LayerOutput[L, N]:
    """Run one layer on one rank; the batch's rows of all ranks stand in the pools after it.

    Sync: two collectives, one for the indexer's rows and one for KV rows.
    """
    ops = setting.kernels
    batch, local = setting.batch, setting.local
    page_table: PageTable = brand(batch.required("page_table", "attend"))
    topk = choose_keys(
        inputs, setting, pools.index, wiring.index_format, page_table, gathers_into_pool=wiring.gathers_into_pool
    )
    q = wiring.place(inputs, setting, pools.kv, wiring.row_format)
    out, lse = ops.attend(
        q,
        pools.kv,
        topk,
        local.causal_lens,
        local.request_of_row,
        page_table,
        setting.model.softmax_scale,
        wiring.q_scale,
        wiring.kv_scale,
        F32,
        wiring.row_format,
        batch,
    )
    return LayerOutput(out, lse)
