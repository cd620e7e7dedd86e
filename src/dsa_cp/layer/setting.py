"""What a layer's functions need besides its rows."""

from dataclasses import dataclass
from typing import Generic

from dsa_contracts import Comm, CpBatch, Ten
from dsa_contracts.core.marks import F32, Contiguous, Plain
from dsa_contracts.dsa.dims import CosSinWidth, MaxPosition
from dsa_contracts.dsa.states import Table
from dsa_contracts.dsa.typevars import L, N
from dsa_cp.layer.kernel_sets import TorchKernels
from dsa_cp.layer.local_batch import LocalBatch
from dsa_cp.layer.models import ModelDims


@dataclass(frozen=True)
class Setting(Generic[L, N]):
    """What a placement needs besides the layer's rows: made once per batch.

    Attributes:
        model: the model's dims.
        batch: the batch, at the layer that the placement works for.
        local: this rank's rows.
        comm: the context-parallel group.
        cos_sin_cache: the cos/sin table.
        quant_scale_q: multiplies q before a flat e4m3 cast.
        quant_scale_kv: multiplies K before a flat e4m3 cast.
        kernels: the implementations of the stages.
    """

    model: ModelDims
    batch: CpBatch[L]
    local: LocalBatch[L, N]
    comm: Comm
    cos_sin_cache: Ten[Table, Plain, F32, Contiguous, MaxPosition, CosSinWidth]
    quant_scale_q: float = 1.0
    quant_scale_kv: float = 1.0
    kernels: type[TorchKernels] = TorchKernels
