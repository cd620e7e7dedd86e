"""What attention backends can do, as data: one module a library, one record a backend."""

from dsa_contracts.capabilities.aiter import AITER
from dsa_contracts.capabilities.fa3 import FA3
from dsa_contracts.capabilities.flashinfer import TRTLLM
from dsa_contracts.capabilities.flashmla import FLASHMLA_KV, FLASHMLA_SPARSE
from dsa_contracts.capabilities.record import (
    Capability,
    Fact,
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
from dsa_contracts.capabilities.tilelang import TILELANG
from dsa_contracts.capabilities.torch_reference import TORCH_REFERENCE

__all__ = [
    "CAPABILITIES",
    "Capability",
    "Fact",
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
