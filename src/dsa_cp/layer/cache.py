"""The KV cache of one layer on one rank: where K's rows and the indexer's rows stand, and in which formats."""

from dataclasses import dataclass
from typing import Any, Generic

import torch
from torch import Tensor

from dsa_contracts import Comm, declare_lasting
from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.dsa.aliases import KvCache
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_contracts.dsa.states import Packed, Pool, Rotated
from dsa_contracts.dsa.typevars import FI, ND, NDI, RD, RDI, F
from dsa_cp.comm.sharing import sharing_pools


@dataclass(frozen=True)
class CacheFormats(Generic[F, ND, RD, FI, NDI, RDI]):
    """The row formats of a layer's KV cache: `kv` of K's rows, `index` of the indexer's rows."""

    kv: RowFormat[F, ND, RD]
    index: RowFormat[FI, NDI, RDI]


@dataclass(frozen=True)
class LayerCache(Generic[F, ND, RD, FI, NDI, RDI]):
    """What one layer keeps of all tokens, for itself and for its indexer.

    Attributes:
        kv: KV rows, bytes [num_pages, page_size, row_bytes].
        index: the indexer's rows, in the same slots.
        formats: the formats of both.
    """

    kv: KvCache[F]
    index: KvCache[FI]
    formats: CacheFormats[F, ND, RD, FI, NDI, RDI]


AnyFormats = CacheFormats[Any, Any, Any, Any, Any, Any]
"""Formats that a plan has chosen: no type checker knows them."""

AnyCache = LayerCache[Any, Any, Any, Any, Any, Any]
"""A cache of such formats."""


def declare_cache(formats: AnyFormats, kv: Tensor, index: Tensor, layer: int | None = None) -> AnyCache:
    """Return an engine's two pools as the KV cache of a layer; nothing is copied.

    Args:
        formats: the formats of its rows.
        kv: pool of KV rows, uint8 [num_pages, page_size, row_bytes].
        index: pool of the indexer's rows, likewise.
        layer: the layer that they belong to; None: whichever.

    Raises:
        ArgumentError: DSA602, a pool's rows are not as wide as their format.
    """
    return LayerCache(_declared(kv, formats.kv, layer), _declared(index, formats.index, layer), formats)


def _declared(pool: Tensor, row_format: Any, layer: int | None) -> Any:
    """Return a pool that says which rows it holds."""
    if pool.shape[-1] != row_format.row_bytes:
        width, want = pool.shape[-1], row_format.row_bytes
        raise ArgumentError(f"a pool of {row_format.name} rows is {width} bytes wide; a row has {want}")
    name = "KV cache" if layer is None else f"KV cache of layer {layer}"
    return declare_lasting(pool, Pool, Packed[row_format.mark, Rotated], name, layer)


def new_cache(
    formats: AnyFormats,
    num_pages: int,
    page_size: int,
    *,
    layer: int | None = None,
    device: torch.device | str = "cpu",
    comm: Comm | None = None,
) -> AnyCache:
    """Return an empty KV cache of one layer.

    Args:
        formats: the formats of its rows.
        num_pages: pages of each pool.
        page_size: slots of a page.
        layer: the layer that it belongs to; None: whichever.
        device: where it is.
        comm: the group; where its ranks reach each other's memory, they reach this cache. The same call on every rank then.
    """
    shares = sharing_pools(comm)

    def pool(row_format: RowFormat[Any, Any, Any]) -> Tensor:
        shape = (num_pages, page_size, row_format.row_bytes)
        return torch.zeros(shape, dtype=torch.uint8, device=device) if shares is None else shares.new_pools(1, shape)[0]

    return declare_cache(formats, pool(formats.kv), pool(formats.index), layer)
