"""What attention backends can do, as data: one module a library, one record a backend."""

from dsa_cp.planner.backends.aiter import AITER
from dsa_cp.planner.backends.fa3 import FA3
from dsa_cp.planner.backends.flashinfer import TRTLLM
from dsa_cp.planner.backends.flashmla import FLASHMLA_KV, FLASHMLA_SPARSE
from dsa_cp.planner.backends.record import (
    Capability,
    Cited,
    FusedWith,
    IntRule,
    KvScale,
    Lse,
    Need,
    Phase,
    QueryDtype,
    Reading,
    Rotation,
    Rules,
    Strides,
)
from dsa_cp.planner.backends.tilelang import TILELANG
from dsa_cp.planner.backends.torch_reference import TORCH_REFERENCE

__all__ = [
    "CAPABILITIES",
    "Capability",
    "Cited",
    "FusedWith",
    "IntRule",
    "KvScale",
    "Lse",
    "Need",
    "Phase",
    "QueryDtype",
    "Reading",
    "Rotation",
    "Rules",
    "Strides",
]

CAPABILITIES: dict[str, Capability] = {
    capability.name: capability
    for capability in (TRTLLM, FLASHMLA_SPARSE, FLASHMLA_KV, TILELANG, AITER, FA3, TORCH_REFERENCE)
}
