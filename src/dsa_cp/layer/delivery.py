"""How packed rows come from the rank that made them into the KV cache of every rank: K's and the indexer's alike."""

from typing import Any, Protocol

from dsa_contracts import brand
from dsa_contracts.dsa.aliases import DenseKvRows, IndexCache, IndexRows, KvRows, SlotMapping
from dsa_contracts.dsa.dims import NnzGathered
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.states import Global, Local, RankMajor, Rotated
from dsa_contracts.dsa.typevars import FI, ND, NDI, RD, RDI, F, G, L, N, O, P
from dsa_cp.layer.cache import LayerCache
from dsa_cp.layer.setting import Setting


class Delivery(Protocol):
    """Brings this rank's rows into the KV cache of all ranks."""

    def deliver(
        self,
        kv: KvRows[Local[L], F, Rotated, N],
        index_kv: KvRows[Local[L], FI, Rotated, N],
        setting: Setting[L, N],
        cache: LayerCache[F, ND, RD, FI, NDI, RDI],
    ) -> None:
        """K's rows and the indexer's rows of all ranks stand in their slots of every rank's cache.

        Args:
            kv: this rank's KV rows.
            index_kv: this rank's rows of the indexer.
            setting: what the layer runs with.
            cache: this rank's cache of the layer.

        Sync: collective; every rank of the group takes part.
        """


class GatherThenWrite:
    """Rows are gathered into new memory, and each rank writes them into its own cache: for any group."""

    def deliver(
        self,
        kv: KvRows[Local[L], F, Rotated, N],
        index_kv: KvRows[Local[L], FI, Rotated, N],
        setting: Setting[L, N],
        cache: LayerCache[F, ND, RD, FI, NDI, RDI],
    ) -> None:
        """See `Delivery`. Sync: two collectives."""
        self.write(self.gather(kv, cache.formats.kv, index_kv, setting, cache), setting.rank_major_loc, setting, cache)

    def gather(
        self,
        kv: KvRows[Local[L], F, P, N],
        row_format: RowFormat[F, ND, RD],
        index_kv: KvRows[Local[L], FI, Rotated, N],
        setting: Setting[L, N],
        cache: LayerCache[Any, Any, Any, FI, NDI, RDI],
    ) -> DenseKvRows[Global[RankMajor[L]], F, P, NnzGathered]:
        """Return K's rows of all ranks, for placements that work on them before the write; the indexer's rows are written.

        Args:
            kv: this rank's K as it goes over the wire.
            row_format: its format there, which need not be the cache's.
            index_kv: this rank's rows of the indexer.
            setting: what the layer runs with.
            cache: this rank's cache of the layer.
        """
        ops, batch = setting.kernels, setting.batch
        gathered = ops.all_gather_kv(index_kv, cache.formats.index, batch, setting.comm)
        ops.write_kv(cache.index, gathered, setting.rank_major_loc, cache.formats.index, batch)
        return ops.all_gather_kv(kv, row_format, batch, setting.comm)

    def write(
        self,
        kv: KvRows[Global[O], F, Rotated, G],
        loc: SlotMapping[O, G],
        setting: Setting[L, N],
        cache: LayerCache[F, ND, RD, FI, NDI, RDI],
    ) -> None:
        """Write K's rows of all ranks into this rank's cache.

        Args:
            kv: the rows, in any order.
            loc: slot of each, in the same order.
            setting: what the layer runs with.
            cache: this rank's cache of the layer.
        """
        setting.kernels.write_kv(cache.kv, kv, loc, cache.formats.kv, setting.batch)


class GatherIntoPools:
    """Rows go straight into the pools of all ranks, in one collective: for groups whose ranks reach each other's memory.

    It cannot stand before work on the rows of all ranks, so it has no `gather`.
    """

    def deliver(
        self,
        kv: KvRows[Local[L], F, Rotated, N],
        index_kv: KvRows[Local[L], FI, Rotated, N],
        setting: Setting[L, N],
        cache: LayerCache[F, ND, RD, FI, NDI, RDI],
    ) -> None:
        """See `Delivery`. Sync: one collective."""
        # Beside KV rows in one call, the bytes of the indexer's rows have a dim of their own.
        index_pool: IndexCache[FI] = brand(cache.index)
        index_rows: IndexRows[Local[L], FI, Rotated, N] = brand(index_kv)
        setting.kernels.gather_write_kv_and_index(
            cache.kv,
            index_pool,
            kv,
            index_rows,
            setting.rank_major_loc,
            cache.formats.kv,
            cache.formats.index,
            setting.batch,
            setting.comm,
        )
