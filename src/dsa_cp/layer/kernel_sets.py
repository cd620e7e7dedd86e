"""Kernel sets: the implementations of all stages, as one choice. A placement takes its stages from a set.

Each set overrides what it does better and inherits the rest, so that a set is complete at any time. What a set needs of the
GPU and of the model is refused with a code when a stage runs; `available_on` says what can run on a device.
"""

from collections.abc import Callable
from importlib.util import find_spec

import torch

from dsa_contracts import Comm
from dsa_contracts.core.extensions import Registry
from dsa_cp import stages
from dsa_cp.comm.sharing import sharing_pools
from dsa_cp.kernels import flash_mla_kernels, flashinfer_kernels, triton_kernels
from dsa_cp.kernels.requirements import capability_of

NEWEST = (99, 99)


class TorchKernels:
    """The references, on any device."""

    rebuild_positions = staticmethod(stages.rebuild_positions)
    reorder_causal_lens = staticmethod(stages.reorder_causal_lens)
    apply_rope = staticmethod(stages.apply_rope)
    rope_quantize = staticmethod(stages.rope_quantize)
    quantize_rows = staticmethod(stages.quantize_rows)
    pack_kv = staticmethod(stages.pack_kv)
    pack_index_key = staticmethod(stages.pack_index_key)
    all_gather_kv = staticmethod(stages.all_gather_kv)
    restore_order = staticmethod(stages.restore_order)
    gather_write_kv = staticmethod(stages.gather_write_kv)
    gather_write_kv_and_index = staticmethod(stages.gather_write_kv_and_index)
    split_kv = staticmethod(stages.split_kv)
    write_kv = staticmethod(stages.write_kv)
    merge_q = staticmethod(stages.merge_q)
    select_topk = staticmethod(stages.select_topk)
    attend = staticmethod(stages.attend)


class TritonKernels(TorchKernels):
    """Triton on GPUs from SM90; the same stages on a CPU run the custom ops' torch implementations."""

    rope_quantize = staticmethod(triton_kernels.rope_quantize)
    quantize_rows = staticmethod(triton_kernels.quantize_rows)
    pack_index_key = staticmethod(triton_kernels.pack_index_key)
    write_kv = staticmethod(triton_kernels.write_kv)
    select_topk = staticmethod(triton_kernels.select_topk)
    attend = staticmethod(triton_kernels.attend)


class FlashMlaKernels(TritonKernels):
    """Triton, with attention through FlashMLA: 64 or 128 heads."""

    attend = staticmethod(flash_mla_kernels.attend)


class FlashinferKernels(TritonKernels):
    """Triton, with RoPE and quantisation through flashinfer: the baseline of `rope_quantize`."""

    rope_quantize = staticmethod(flashinfer_kernels.rope_quantize)


class TrtllmKernels(FlashinferKernels):
    """flashinfer throughout, with attention through trtllm-gen: compute capability 10.0 and 10.3."""

    attend = staticmethod(flashinfer_kernels.attend)


KERNEL_SETS: Registry[type[TorchKernels]] = Registry(
    "dsa_contracts.kernel_sets",
    {
        "torch": TorchKernels,
        "triton": TritonKernels,
        "flash_mla": FlashMlaKernels,
        "flashinfer": FlashinferKernels,
        "trtllm": TrtllmKernels,
    },
    what="kernel set",
    is_one=lambda found: isinstance(found, type) and issubclass(found, TorchKernels),
)
"""The kernel sets by name; one that a distribution adds derives from one of these, and refuses what it cannot do itself."""


def kernels_for(kernels: str | type[TorchKernels], comm: Comm) -> type[TorchKernels]:
    """Return a kernel set by name, or a set that is given, as a group runs it.

    Args:
        kernels: a name of `KERNEL_SETS`, or a set.
        comm: the group; where its ranks reach each other's memory, what gathers and writes does so in one launch.

    Raises:
        ArgumentError: DSA602, there is no set of that name.
    """
    if isinstance(kernels, str):
        kernels = KERNEL_SETS.named(kernels)
    return kernels if sharing_pools(comm) is None else reaching_peers(kernels)


def reaching_peers(kernels: type[TorchKernels]) -> type[TorchKernels]:
    """Return a kernel set for a `SymmetricComm`: what gathers and writes does so in one launch, the rest is of `kernels`."""
    from dsa_cp.kernels import symmetric_kernels

    members = {
        "gather_write_kv": staticmethod(symmetric_kernels.gather_write_kv),
        "gather_write_kv_and_index": staticmethod(symmetric_kernels.gather_write_kv_and_index),
    }
    return type(f"{kernels.__name__}ReachingPeers", (kernels,), members)


def observed(kernels: type[TorchKernels], observe: Callable[[str, tuple[object, ...], object], None]) -> type[TorchKernels]:
    """Return a kernel set that does what `kernels` does and tells each call: the stage's name, arguments and result."""

    def telling(name: str, function: Callable[..., object]) -> Callable[..., object]:
        def tell(*args: object) -> object:
            result = function(*args)
            observe(name, args, result)
            return result

        return tell

    names = [name for name in stages.__all__ if hasattr(kernels, name)]
    members = {name: staticmethod(telling(name, getattr(kernels, name))) for name in names}
    return type(f"Observed{kernels.__name__}", (kernels,), members)


def available_on(device: torch.device) -> dict[str, str]:
    """Return for each of these kernel sets why it cannot run on a device, an empty text where it can."""
    found = {name: find_spec(name) is not None for name in ("triton", "flashinfer", "flash_mla")}
    capability = capability_of(device) if device.type == "cuda" else (0, 0)
    needs = {
        "torch": ((), (0, 0), NEWEST),
        "triton": (("triton",), (9, 0), NEWEST),
        "flash_mla": (("triton", "flash_mla"), (9, 0), (10, 9)),
        "flashinfer": (("triton", "flashinfer"), (9, 0), NEWEST),
        "trtllm": (("triton", "flashinfer"), (10, 0), (10, 3)),
    }
    reasons = {}
    for name, (packages, least, most) in needs.items():
        missing = [package for package in packages if not found[package]]
        reasons[name] = f"not installed: {', '.join(missing)}" if missing else ""
        if not least <= capability <= most:
            got = f"{capability[0]}.{capability[1]}" if device.type == "cuda" else str(device)
            until = "and newer" if most == NEWEST else f"to {most[0]}.{most[1]}"
            reasons[name] = f"needs compute capability {least[0]}.{least[1]} {until}, got {got}"
    return reasons
