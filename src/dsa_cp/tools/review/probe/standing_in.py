"""Stages for which their contracts stand: results of the right size, dtype and brand, and no values.

A stage that reads data cannot run on fake tensors. What stands around it can, once it is taken at its word.
"""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, get_args, get_origin

import torch
from torch import Tensor

import dsa_cp.stages as stages
from dsa_contracts import CpBatch, Mode, contract_of, stage
from dsa_contracts.core.contract import StageContract
from dsa_contracts.core.marks import dim_text
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_cp.layer.kernel_sets import TorchKernels


def promised_kernels(names: tuple[str, ...]) -> type[TorchKernels]:
    """Return the references, but for the named stages, for which their contracts stand."""
    members = {name: staticmethod(promise_of(contract_of(getattr(stages, name)))) for name in names}
    return type("PromisedKernels", (TorchKernels,), members)


def promise_of(contract: StageContract) -> Callable[..., Any]:
    """Return a stage whose results are what its contract says, and nothing more."""

    def promised(*args: object) -> object:
        values = dict(zip(contract.names, args, strict=True))
        sizes, marks = _sizes(contract, values), _marks(contract, values)
        made = tuple(_made(record.spec, sizes, marks) for record in contract.returns if record.spec is not None)
        return made if len(made) > 1 else made[0] if made else None

    promised.__name__ = contract.name
    promised.__signature__ = inspect.signature(contract.stub)  # type: ignore[attr-defined]
    return stage(contract.stub, mode=Mode.DEVELOPMENT)(promised)


def _sizes(contract: StageContract, values: dict[str, object]) -> dict[str, int]:
    """Return the sizes of dims, as the batch, the tensors and the numbers of a call have them."""
    batch = values["batch"]
    found = {name: dim.value for name, dim in batch.dims.dims.items()} if isinstance(batch, CpBatch) else {}
    for param in contract.params:
        value = values[param.name]
        if param.spec is not None and isinstance(value, Tensor):
            found |= {dim_text(dim): size for dim, size in zip(param.spec.dims, value.shape, strict=False)}
        elif isinstance(value, int):
            found[param.name] = value
    return found


def _marks(contract: StageContract, values: dict[str, object]) -> dict[str, object]:
    """Return what type variables stand for, as arguments that are no tensors say."""
    found: dict[str, object] = {}
    for param in contract.params:
        value, names = values[param.name], [getattr(arg, "__name__", "") for arg in get_args(param.hint)]
        if get_origin(param.hint) is type:
            found[names[0]] = value
        elif isinstance(value, RowFormat):
            found |= dict(zip(names, value.type_marks, strict=True))
    return found


def _made(spec: Any, sizes: dict[str, int], marks: dict[str, object]) -> Tensor:
    """Return a tensor of a spec."""
    dtype = marks[spec.dtype.__name__] if isinstance(spec.dtype, TypeVar) else spec.dtype
    return torch.empty([sizes[dim_text(dim)] for dim in spec.dims], dtype=getattr(dtype, "torch_dtype", None))
