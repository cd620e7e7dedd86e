"""Proofs, for all lengths, of what the layouts and the index tensors promise; and counter-examples where they are false.

The formulas are those of `dsa_contracts.dsa.formulas`, called with z3 terms. `cut` composes them as the tensor code does,
`right` has the steps that somebody has got wrong, `wrong` has them wrong on purpose, `obligations` and `stage_fit` say what
must hold, `solver` proves or refutes it (it alone imports z3), and `prover` goes through layouts and group sizes.
"""
