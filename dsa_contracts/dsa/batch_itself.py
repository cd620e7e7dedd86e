"""Whether a batch's index tensors say what its lengths say: every other invariant takes the batch's word for it."""

import torch
from torch import Tensor

from dsa_contracts.core.errors import StageInputError
from dsa_contracts.dsa.batch_tensors import IndexTensors

_FLAG = "_vouches_for_itself"


def check_batch(batch: IndexTensors, stage: str, location: str) -> None:
    """Compare the index tensors of a batch with its lengths, once for each batch object and the views of its layers.

    Raises:
        StageInputError: DSA115 (positions), DSA117 (lengths), DSA119 (rows, requests).
    """
    if batch.__dict__.get(_FLAG):
        return
    for name, code, got, want in _facts(batch):
        if got.shape == want.shape and bool((got == want).all()):
            continue
        same = got.shape == want.shape
        at = int((got != want).nonzero()[0, 0]) if same else 0
        headline = f"{name}[{at}] is {int(got[at])}" if same else f"{name} has {got.shape[0]} entries"
        raise StageInputError(
            f"{stage}: batch.{headline}, its lengths say {int(want[at]) if same else want.shape[0]}",
            code=code,
            facts=[
                ("expected", "index tensors of the lengths of the batch, as build_batch makes them"),
                ("where", batch.where),
                ("contract", location),
                ("try", "build the batch anew where its lengths change, and write into none of its tensors"),
            ],
        )
    object.__setattr__(batch, _FLAG, True)


def _facts(batch: IndexTensors) -> list[tuple[str, str, Tensor, Tensor]]:
    """Return name, code, what the batch holds and what its lengths say."""
    device = batch.positions.device
    extends = torch.tensor(batch.extend_lens, device=device)
    request = torch.repeat_interleave(torch.arange(len(batch.extend_lens), device=device), extends)
    starts = torch.cumsum(extends, 0) - extends
    prefixes = torch.tensor(batch.prefix_lens, device=device)
    every = torch.arange(batch.nnz, device=device)
    positions = every - starts[request] + prefixes[request]
    gathered = batch.gathered_rows.view(batch.cp_size, batch.nnz_padded)[batch.cp_rank]
    shard, engine = batch.shard_rows, batch.engine_rows
    return [
        ("request_of_row", "DSA119", batch.request_of_row.long(), request),
        ("positions", "DSA115", batch.positions, positions),
        ("causal_lens", "DSA117", batch.causal_lens.long(), positions + 1),
        ("local_rows", "DSA119", batch.local_rows, batch.padded_rows[batch.padded_index]),
        ("local_request_of_row", "DSA119", batch.local_request_of_row.long(), request[batch.local_rows]),
        ("padded_rows", "DSA119", batch.padded_rows, gathered),
        ("restore_index", "DSA119", batch.gathered_rows[batch.restore_index], every),
        ("shard_rows", "DSA119", shard[shard >= 0], batch.local_rows),
        ("engine_rows", "DSA119", torch.unique(engine[engine >= 0]), every),
    ]
