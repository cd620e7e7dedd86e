"""What one rank needs of its rows in every layer, from one object: row i's position, length and request agree."""

from dataclasses import dataclass
from typing import Generic

from dsa_contracts import CpBatch, declare
from dsa_contracts.dsa.aliases import CausalLens, RequestOfRow, RowIndex, TokenPositions
from dsa_contracts.dsa.dims import NnzLocal, NnzPadded
from dsa_contracts.dsa.states import Local, RequestIds
from dsa_contracts.dsa.typevars import L, N
from dsa_cp.layer.kernel_sets import TorchKernels
from dsa_cp.numerics.rows import take_rows


@dataclass(frozen=True)
class LocalBatch(Generic[L, N]):
    """Index tensors of this rank's rows, in local order, made once per batch.

    Attributes:
        rows: row of the batch; -1 for padding.
        positions: position in the row's own request; 0 for padding.
        causal_lens: keys that the row may see; 0 for padding.
        request_of_row: request of the row; 0 for padding.
    """

    rows: RowIndex[Local[L], N]
    positions: TokenPositions[Local[L], N]
    causal_lens: CausalLens[Local[L], N]
    request_of_row: RequestOfRow[Local[L], N]


def local_batch(batch: CpBatch[L], kernels: type[TorchKernels] = TorchKernels) -> LocalBatch[L, NnzLocal]:
    """Return this rank's rows without padding."""
    return LocalBatch(
        batch.local_rows,
        kernels.rebuild_positions(batch.positions, batch.local_rows, batch),
        kernels.reorder_causal_lens(batch.causal_lens, batch.local_rows, batch),
        batch.local_request_of_row,
    )


def padded_local_batch(batch: CpBatch[L], kernels: type[TorchKernels] = TorchKernels) -> LocalBatch[L, NnzPadded]:
    """Return this rank's rows with the padding rows of an engine's static buffers."""
    rows = batch.padded_rows
    requests = take_rows(batch.request_of_row, rows)
    return LocalBatch(
        rows,
        kernels.rebuild_positions(batch.positions, rows, batch),
        kernels.reorder_causal_lens(batch.causal_lens, rows, batch),
        declare(requests, Local[L], RequestIds, batch, "padded_local_batch"),
    )
