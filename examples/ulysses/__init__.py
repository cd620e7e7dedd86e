"""Ulysses sequence parallelism under contracts: from a shard of the sequence to a shard of the heads, and back.

What this refuses in the real world. Around attention each rank trades [seq_local, heads] for [seq, heads_local]. Both are
dense tensors of one dtype and, on one rank or where sizes happen to agree, of one shape. Nothing stops a tensor that is
exchanged twice, attention on a shard of the sequence (each token then sees the tokens of its rank alone, and the loss looks
plausible), or a caller that hands heads first. The rows mark of a tensor tells them apart: a type checker refuses what it
can see, development mode the rest.

Modules: `shards` has the vocabulary, `head_exchange` the contracts, `heads` the implementation;
`refused/attends_on_a_shard` is refused by mypy, `heads_come_first` by development mode.
"""
