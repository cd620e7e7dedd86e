"""Contracts of the DSA context-parallel attention path: what must hold, for a type checker, at run time and for review.

Three names are enough to start: `Ten` states what a tensor is, `contract` makes a function stub the contract of a stage,
`stage` binds an implementation to it.
"""

from dsa_contracts.core.brands import brand, brand_of
from dsa_contracts.core.comm import Comm, guard
from dsa_contracts.core.contract import StageContract, all_contracts, contract, contract_of
from dsa_contracts.core.declarations import declare, declare_lasting
from dsa_contracts.core.errors import CODES, ContractError
from dsa_contracts.core.modes import Mode, checking_values, unchecked
from dsa_contracts.core.runtime.stage import stage, unchecked_function
from dsa_contracts.core.tensors import Ten, TensorSpec
from dsa_contracts.dsa.batch import CpBatch
from dsa_contracts.dsa.layout import Layout, Segment, SegmentTable
from dsa_contracts.dsa.rope import RopeStyle

__all__ = [
    "CODES",
    "Comm",
    "ContractError",
    "CpBatch",
    "Layout",
    "Mode",
    "RopeStyle",
    "Segment",
    "SegmentTable",
    "StageContract",
    "Ten",
    "TensorSpec",
    "all_contracts",
    "brand",
    "brand_of",
    "checking_values",
    "contract",
    "contract_of",
    "declare",
    "declare_lasting",
    "guard",
    "stage",
    "unchecked",
    "unchecked_function",
]
