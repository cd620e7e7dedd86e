"""The DSA prefill context-parallel path: how the contracts of `dsa_contracts` are met."""

__version__ = "0.1.0"
