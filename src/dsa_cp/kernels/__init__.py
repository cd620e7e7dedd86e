"""Kernels: other implementations of the stages, each bound to the same contract as its reference in `dsa_cp.stages`.

`sets` bundles them; a placement takes its stages from one bundle. Optional packages (triton, flashinfer, flash_mla) are
imported when a stage that needs them runs, never on import of this package.
"""
