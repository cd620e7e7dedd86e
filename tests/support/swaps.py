"""Which arguments of a stage could stand for each other as far as dtypes and numbers of dims go, read off the contracts."""

from itertools import combinations
from typing import TypeVar

import dsa_contracts.stages as contracts
from dsa_contracts import TensorSpec, contract_of


def _may_be_one(first: TensorSpec, second: TensorSpec) -> bool:
    """Whether two tensors may have one dtype, and have as many dims: `*Ds` may be any number of them."""
    is_open = any("*" in spec.shape_text for spec in (first, second))
    same_dtype = first.dtype == second.dtype or any(isinstance(spec.dtype, TypeVar) for spec in (first, second))
    return same_dtype and (is_open or len(first.dims) == len(second.dims))


def swaps() -> list[tuple[str, str, str]]:
    """Stage and two of its arguments that a caller may exchange unseen by dtype and number of dims.

    Sizes count for nothing here: `kv_lora_rank` and `qk_rope_head_dim` are two dims and may be one number.
    """
    found = []
    for name in contracts.__all__:
        tensors = [(param.name, param.spec) for param in contract_of(getattr(contracts, name)).params if param.spec]
        found += [(name, a, b) for (a, first), (b, second) in combinations(tensors, 2) if _may_be_one(first, second)]
    return found


SWAPS = swaps()
