"""The signature of a call: everything that a contract reads, apart from device data. Equal signatures pass alike."""

from enum import Enum

from torch import Tensor

from dsa_contracts.batch import CpBatch
from dsa_contracts.brands import brand_of
from dsa_contracts.comm import Comm
from dsa_contracts.layout import Layout


def call_signature(args: tuple[object, ...], batch: CpBatch[Layout]) -> tuple[object, ...]:
    """Return the signature of a call's arguments as one hashable value.

    A brand takes part by its kind, and by whether it was made for this batch and layer, so that the same call in the next
    layer or batch has the same signature.
    """
    token, layer = batch.token, batch.layer
    parts: list[object] = [batch.signature, layer is None]
    for arg in args:
        if isinstance(arg, Tensor):
            brand = brand_of(arg)
            if brand is None:
                parts.append((arg.shape, arg.stride(), arg.dtype, arg.device, None))
                continue
            fresh = brand.batch_token is token or brand.batch_token is None
            if brand.layer is not None and layer is not None and brand.layer != layer:
                fresh = False
            parts.append((arg.shape, arg.stride(), arg.dtype, arg.device, brand.kind, fresh))
        elif arg is not batch:
            parts.append(_plain(arg))
    return tuple(parts)


def _plain(arg: object) -> object:
    """Return what of an argument that is no tensor takes part in the signature."""
    if isinstance(arg, Comm):
        return (type(arg), arg.cp_size, arg.cp_rank)
    if isinstance(arg, bool | int | float | str | type | Enum) or arg is None:
        return (type(arg), arg)
    try:
        hash(arg)
    except TypeError:
        return id(arg)
    return arg


def output_signature(results: tuple[object, ...]) -> tuple[object, ...]:
    """Return the signature of a call's return values."""
    return tuple(
        (result.shape, result.stride(), result.dtype, result.device) if isinstance(result, Tensor) else _plain(result)
        for result in results
    )
