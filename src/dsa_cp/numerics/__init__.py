"""Arithmetic and indexing that references and kernels share: plain functions of plain tensors, below all stages."""
