"""Whether tensors are of the same shape, strides, dtype and device as others were, asked in one call.

torch compares tensors in C++ before it runs a compiled graph again: `TensorGuards`. Four tensors cost it about what Python
needs to read one `shape`. The class is not public: any torch but those that were tried gets the comparison in Python.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

SameTensors = Callable[..., bool]
"""Whether tensors, one argument each, are as those were that it was made for. False may also mean: not known."""

TRIED = ((2, 11), (2, 15))
"""From which version of torch its guards were tried, and before which: a private class, which crashes on other parameters."""

PLAIN_TYPES = (Tensor, torch.nn.Parameter)


def same_tensors(tensors: tuple[Tensor, ...]) -> SameTensors | None:
    """Return what recognises tensors like these; None for subclasses, sizes that are symbols, and one tensor twice."""
    if len({id(tensor) for tensor in tensors}) < len(tensors):
        return None  # torch's guards take no tensor twice
    if any(type(tensor) not in PLAIN_TYPES or tensor.layout is not torch.strided or tensor.is_nested for tensor in tensors):
        return None
    if any(type(size) is not int for tensor in tensors for size in (*tensor.shape, *tensor.stride())):
        return None
    return _guards_of(tensors) if tensors and HAS_GUARDS else _compared_in_python(tensors)


def _guards_of(tensors: tuple[Tensor, ...]) -> SameTensors:
    """Return torch's own comparison."""
    from torch._C._dynamo import guards

    make: Any = guards.TensorGuards  # its stub has other parameters
    sizes, strides = [list(one.shape) for one in tensors], [list(one.stride()) for one in tensors]
    check: SameTensors = make(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
    return check


def _compared_in_python(tensors: tuple[Tensor, ...]) -> SameTensors:
    """Return a comparison of the facts that are read here."""
    facts = [_facts(one) for one in tensors]

    def same(*others: object) -> bool:
        tensors = [one for one in others if isinstance(one, Tensor)]
        found = [_facts(one) for one in tensors]
        return len(tensors) == len(others) and found == facts

    return same


def _facts(tensor: Tensor) -> tuple[object, ...]:
    """Return what of a tensor is compared; torch's guards too tell a tensor of inference mode from others."""
    return (type(tensor), tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.is_inference())


def _has_guards() -> bool:
    """Whether this torch is one of those that were tried, and its guards say no to each difference that matters here."""
    if not TRIED[0] <= tuple(int(part) for part in torch.__version__.split(".")[:2]) < TRIED[1]:
        return False
    like = torch.empty(2, 3, dtype=torch.int32, device="cpu")
    with torch.inference_mode():
        made_there = torch.empty_like(like)
    others = (like[:1], like.to(torch.int64), like.new_empty(3, 2).t(), like.to("meta"), made_there)
    check = _guards_of((like,))
    return check(torch.empty_like(like)) is True and not any(check(other) for other in others)


HAS_GUARDS = _has_guards()
