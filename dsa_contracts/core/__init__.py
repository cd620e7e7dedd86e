"""The machinery of contracts: typed tensors, contracts and their checks. It knows no word of any path.

Three names are enough to start: `Ten` states what a tensor is, `contract` makes a function stub the contract of a stage,
`stage` binds an implementation to it. `observe` checks calls that are made elsewhere. docs/tutorial.md goes through them.
"""

from dsa_contracts.core.brands import brand, brand_of
from dsa_contracts.core.comm import Comm, Exchange, Group, PassiveComm, guard
from dsa_contracts.core.contract import StageContract, all_contracts, contract, contract_of
from dsa_contracts.core.declarations import declare, declare_lasting
from dsa_contracts.core.errors import CODES, ContractError, add_codes
from dsa_contracts.core.extensions import load_vocabularies
from dsa_contracts.core.invariant import Call, Invariant
from dsa_contracts.core.modes import Mode, checking_values, unchecked
from dsa_contracts.core.parts import Parts
from dsa_contracts.core.runtime.observe import Observer, observe
from dsa_contracts.core.runtime.stage import stage, unchecked_function
from dsa_contracts.core.scope import Scope, current_scope, forward
from dsa_contracts.core.tensors import Ten, TensorSpec

__all__ = [
    "CODES",
    "Call",
    "Comm",
    "ContractError",
    "Exchange",
    "Group",
    "Invariant",
    "Mode",
    "Observer",
    "Parts",
    "PassiveComm",
    "Scope",
    "StageContract",
    "Ten",
    "TensorSpec",
    "add_codes",
    "all_contracts",
    "brand",
    "brand_of",
    "checking_values",
    "contract",
    "contract_of",
    "current_scope",
    "declare",
    "declare_lasting",
    "forward",
    "guard",
    "load_vocabularies",
    "observe",
    "stage",
    "unchecked",
    "unchecked_function",
]
