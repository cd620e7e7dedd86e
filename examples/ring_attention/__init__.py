"""Ring attention under contracts: key blocks go from rank to rank, queries keep a running softmax, ranks work alike.

What this refuses in the real world. At each hop a rank attends to the block that has just come. A send that is not waited for
leaves the block of the hop before in the buffer: it is counted twice, another never, and the output is finite. A block that
travels the other way round is masked as the one that should have come. Kernels return the log of the softmax's denominator
to base e (FlashAttention) or base 2 (FlashInfer): merged with each other, partial results get shares that are not theirs. A
sequence that is cut into one piece a rank is right and slow: the last rank has almost twice the work of the mean.

Modules: `travel` has the vocabulary, `ring_contracts` the contracts, `ring` the implementation;
`refused/merges_other_bases` is refused by mypy, `stale_block` by development mode.
"""
