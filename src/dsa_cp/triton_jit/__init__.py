"""The Triton kernels and their launches, a file a stage: the one place that imports triton.

Every launch takes plain tensors and numbers, allocates its outputs, runs on the current stream and does not wait for the
device, so that a layer can be captured into a CUDA graph. Nothing here is imported until a Triton stage runs.
"""
