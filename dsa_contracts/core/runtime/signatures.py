"""The signature of a call: everything that a contract reads, apart from device data. Equal signatures pass alike.

Brands and scopes take part by objects that are one for equal facts, whose hash is their identity, and the group is known
by its place and not by a protocol test. A call that looks like the one before is recognised without: see `looks`.
"""

from dataclasses import dataclass

from torch import Tensor

from dsa_contracts.core.brands import ATTRIBUTE
from dsa_contracts.core.contract import StageContract
from dsa_contracts.core.marks import dtype_text
from dsa_contracts.core.parts import Marked, Parts
from dsa_contracts.core.scope import Scope
from dsa_contracts.core.views import adopt


@dataclass(frozen=True)
class Places:
    """Where what stands among a stage's arguments.

    Attributes:
        scope: the scope.
        comm: the group of a collective stage, None for other stages.
        tensors: parameters that a `Ten` annotates.
        others: all other parameters.
        offsets: tensors of which an invariant reads where in their memory they start.
        count: how many arguments there are.
    """

    scope: int | None
    comm: int | None
    tensors: tuple[int, ...]
    others: tuple[int, ...]
    offsets: tuple[int, ...]
    count: int


def places_of(contract: StageContract) -> Places:
    """Return where what stands among the arguments of a contract's stage."""
    scope = contract.names.index(contract.scope_param) if contract.scope_param else None
    comm = contract.names.index(contract.comm_param) if contract.comm_param else None
    tensors = tuple(at for at, param in enumerate(contract.params) if param.spec is not None)
    others = tuple(at for at in range(len(contract.params)) if at not in (scope, comm, *tensors))
    read = {invariant.subject for invariant in contract.requires if invariant.reads_offset}
    offsets = tuple(at for at in tensors if contract.names[at] in read)
    return Places(scope, comm, tensors, others, offsets, len(contract.params))


_METADATA: dict[tuple[object, ...], object] = {}

METADATA_LIMIT = 8192
"""Metadata that have a key; past it all are forgotten, and calls are checked anew."""


def metadata_key(tensor: Tensor) -> object:
    """Return one object for all tensors with this shape, these strides, dtype and device; its hash is its identity."""
    facts = (tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
    try:
        found = _METADATA.get(facts)
    except TypeError:
        return facts  # sizes that are symbols
    if found is None:
        if len(_METADATA) >= METADATA_LIMIT:
            _METADATA.clear()
        found = _METADATA.setdefault(facts, object())
    return found


def call_signature(args: tuple[object, ...], scope: Scope, places: Places) -> tuple[object, ...]:
    """Return the signature of a call's arguments as one value, hashable where all arguments are.

    A brand takes part by its kind, and by whether it was made for this scope and layer, so that the same call in the next
    layer or scope has the same signature. A group takes part by its size and rank.
    """
    token, layer = scope.token, scope.layer
    parts: list[object] = [scope.signature, layer is None]
    add = parts.append
    for at in places.tensors:
        arg = args[at]
        if isinstance(arg, Parts):
            add(type(arg))
            tensors: tuple[Tensor, ...] = arg.tensors
        elif isinstance(arg, Tensor):
            tensors = (arg,)
        else:
            parts += (type(arg), arg)
            continue
        for tensor in tensors:
            brand = getattr(tensor, ATTRIBUTE, None) if adopt(tensor, scope) else None
            add(metadata_key(tensor))
            if brand is None:
                add(None)
                continue
            _, key, made_for, made_in = brand
            if made_for is not token and made_for is not None:
                key = object()  # stale: equal to nothing that is remembered
            elif made_in is not layer and made_in is not None and layer is not None and made_in != layer:
                key = object()
            add(key)
    for at in places.others:
        arg = args[at]
        add(type(arg))
        add(arg)
    for at in places.offsets:
        arg = args[at]
        add(arg.storage_offset() if isinstance(arg, Tensor) else None)
    if places.comm is not None:
        comm = args[places.comm]
        parts += (type(comm), getattr(comm, "size", None), getattr(comm, "rank", None))
    return tuple(parts)


def output_signature(results: tuple[object, ...]) -> tuple[object, ...]:
    """Return the signature of a call's return values: the metadata key of a tensor, type and value of anything else."""
    return tuple([_result_key(one) for one in results])


def _result_key(result: object) -> object:
    """Return the part of the signature of one return value."""
    if isinstance(result, Parts):
        return (type(result), *map(metadata_key, result.tensors))
    return metadata_key(result) if isinstance(result, Tensor) else (type(result), result)


def shared_facts(args: tuple[object, ...]) -> str:
    """Return what of a collective's arguments must be the same on every rank: dtypes, widths and formats."""
    tensors = [arg for arg in args if isinstance(arg, Tensor)]
    widths = [f"{dtype_text(one.dtype)}[{', '.join(['rows', *map(str, one.shape[1:])])}]" for one in tensors]
    return " ".join([*widths, *(arg.name for arg in args if isinstance(arg, Marked))])
