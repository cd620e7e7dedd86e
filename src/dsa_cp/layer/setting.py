"""What a layer's functions need besides its rows, made once per batch."""

from dataclasses import dataclass
from typing import Generic

from dsa_contracts import Comm, CpBatch, brand
from dsa_contracts.dsa.aliases import CosSinCache, PageTable, SlotMapping
from dsa_contracts.dsa.dims import Nnz, NnzGathered
from dsa_contracts.dsa.states import RankMajor, Sequence
from dsa_contracts.dsa.typevars import L, N
from dsa_cp.layer.kernel_sets import TorchKernels
from dsa_cp.layer.local_batch import LocalBatch
from dsa_cp.layer.models import ModelDims


@dataclass(frozen=True)
class Setting(Generic[L, N]):
    """What the functions of a layer share.

    Attributes:
        model: the model's dims.
        batch: the batch, at the layer that runs.
        local: this rank's rows.
        comm: the context-parallel group.
        cos_sin_cache: the cos/sin table.
        quant_scale: multiplies q and K before a flat e4m3 cast; 1 where nothing is cast flat.
        kernels: the implementations of the stages.
    """

    model: ModelDims
    batch: CpBatch[L]
    local: LocalBatch[L, N]
    comm: Comm
    cos_sin_cache: CosSinCache
    quant_scale: float = 1.0
    kernels: type[TorchKernels] = TorchKernels

    @property
    def rank_major_loc(self) -> SlotMapping[RankMajor[L], NnzGathered]:
        """Slot of each gathered row."""
        return rank_major_loc(self.batch)

    @property
    def out_cache_loc(self) -> SlotMapping[Sequence, Nnz]:
        """Slot of each row in sequence order."""
        return brand(self.batch.required("out_cache_loc", "write_kv"))

    @property
    def page_table(self) -> PageTable:
        """Pages of each request."""
        return brand(self.batch.required("page_table", "attend"))


def rank_major_loc(batch: CpBatch[L]) -> SlotMapping[RankMajor[L], NnzGathered]:
    """Return the slot of each gathered row; raises BatchError DSA304 where the batch has no slot mapping."""
    return brand(batch.required("rank_major_loc", "write_kv"))
