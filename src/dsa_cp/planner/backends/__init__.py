"""What attention backends can do, as data: one module a library, one record a backend."""

from dsa_contracts.core.extensions import Registry
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

_OWN = (TRTLLM, FLASHMLA_SPARSE, FLASHMLA_KV, TILELANG, AITER, FA3, TORCH_REFERENCE)

CAPABILITIES: Registry[Capability] = Registry(
    "dsa_contracts.backends",
    {capability.name: capability for capability in _OWN},
    what="backend",
    is_one=lambda found: isinstance(found, Capability),
)
"""The backends by name."""
