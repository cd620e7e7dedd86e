"""What a kernel needs of the GPU and of its arguments, beyond the contract of its stage: asked, and refused with a code.

A kernel that is called outside of its range may crash the process or read out of bounds without a word, so that every
limit that is known is compared on the host before a launch.
"""

from functools import cache

import torch
from torch import Tensor

from dsa_contracts.core.errors import StageInputError
from dsa_contracts.dsa.codes import PlanError
from dsa_contracts.dsa.row_formats import SCALE_GROUP, RowFormat
from dsa_contracts.dsa.typevars import ND, RD, F

KEY_FORMATS = ("bf16", "fp8", "fp8_656")
"""Row formats that hold keys of the attention, not of the indexer."""


@cache
def capability_of(device: torch.device) -> tuple[int, int]:
    """Return the compute capability of a CUDA device."""
    return torch.cuda.get_device_capability(device)


def require_capability(user: str, device: torch.device, least: tuple[int, int]) -> None:
    """Raise PlanError DSA401 unless a device is a GPU of at least a compute capability."""
    if device.type == "cuda" and capability_of(device) >= least:
        return
    got = f"{device}" if device.type != "cuda" else "compute capability {}.{}".format(*capability_of(device))
    raise PlanError(
        f"{user} runs on GPUs of compute capability {least[0]}.{least[1]} and newer",
        facts=[("got", got), ("try", "TorchKernels run on any device")],
    )


def require_one_of(user: str, name: str, got: object, allowed: tuple[object, ...]) -> None:
    """Raise PlanError DSA401 unless a value is one of those that a kernel is built for."""
    if got not in allowed:
        raise PlanError(
            f"{user} is built for {name} {', '.join(map(str, allowed))}, not for {got}",
            facts=[("try", "a kernel set without this limit; `dsa_cp.layer.kernel_sets` lists them")],
        )


def require_power_of_two(user: str, name: str, got: int) -> None:
    """Raise PlanError DSA401 unless a dim is a power of two."""
    if got < 1 or got & (got - 1):
        raise PlanError(f"{user} takes {name} that are powers of two, not {got}")


def require_aligned(user: str, name: str, tensor: Tensor, num_bytes: int) -> None:
    """Raise StageInputError DSA104 unless a tensor starts, and each of its rows, at a multiple of `num_bytes`."""
    size = tensor.element_size()
    steps = [tensor.data_ptr(), *(step * size for step in tensor.stride()[:-1])]
    if any(step % num_bytes for step in steps):
        raise StageInputError(
            f"{user}: {name} is not aligned to {num_bytes} bytes",
            code="DSA104",
            facts=[("got", f"address {steps[0]:#x}, strides of {', '.join(map(str, steps[1:]))} bytes")],
        )


def require_32_bit_slots(user: str, num_slots: int) -> None:
    """Raise PlanError DSA401 where slots do not fit 32 bits: index lists hold them so."""
    if num_slots >= 2**31:
        raise PlanError(f"{user} counts slots in 32 bits, the pool has {num_slots}")


def scale_group_of(user: str, row_format: RowFormat[F, ND, RD]) -> int:
    """Return how many codes of a key row share a scale of the row, 0 where none do; refuses formats of other rows."""
    require_one_of(user, "row format", row_format.name, KEY_FORMATS)
    return SCALE_GROUP if row_format.name == "fp8_656" else 0
