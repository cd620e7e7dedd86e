"""Stages and the path under fake tensors whose dims are different primes."""
