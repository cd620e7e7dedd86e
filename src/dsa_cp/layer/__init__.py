"""One layer of the attention path: what goes in, what it writes, and the functions between; the planner has its door."""

from dsa_cp.layer.cache import AnyCache, AnyFormats, CacheFormats, LayerCache, declare_cache, new_cache
from dsa_cp.layer.inputs import LayerInputs, declare_inputs
from dsa_cp.layer.kernel_sets import KERNEL_SETS, TorchKernels, TritonKernels
from dsa_cp.layer.local_batch import LocalBatch, local_batch, padded_local_batch
from dsa_cp.layer.models import MODELS, ModelDims
from dsa_cp.layer.path import AttentionLayer, LayerOutput, run_layer

__all__ = [
    "KERNEL_SETS",
    "MODELS",
    "AnyCache",
    "AnyFormats",
    "AttentionLayer",
    "CacheFormats",
    "LayerCache",
    "LayerInputs",
    "LayerOutput",
    "LocalBatch",
    "ModelDims",
    "TorchKernels",
    "TritonKernels",
    "declare_cache",
    "declare_inputs",
    "local_batch",
    "new_cache",
    "padded_local_batch",
    "run_layer",
]
