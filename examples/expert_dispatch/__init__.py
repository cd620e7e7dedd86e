"""Expert parallelism under contracts: tokens go to the ranks of their experts, and their results come back weighed once.

What this refuses in the real world. After dispatch rows stand in the order of experts, after the way back in the order in
which they were sent, after combine in the order of tokens. All three are [n, hidden] of one dtype, and where every token
has one expert, of one length: summed in the wrong order they give finite values of a plausible size. Some expert kernels
apply the router's weights in their epilogue, others leave it to combine: a model that is moved from one to the other applies
them twice, or never. Counts say how many rows go to which rank; those of another step or rank cut the same bytes elsewhere.

Modules: `routing` has the vocabulary, `dispatch_contracts` the contracts, `dispatch` the implementation;
`refused/weighs_twice` is refused by mypy, `counts_of_another_step` by development mode.
"""
