"""Values of rows by their index, where -1 marks padding."""

import torch
from torch import Tensor


def take_rows(values: Tensor, rows: Tensor) -> Tensor:
    """Return the value of each row, 0 for padding.

    Args:
        values: [nnz], one value a row of the batch.
        rows: int64 [n], rows of the batch; negative for padding.

    Returns:
        [n], new memory, dtype of `values`.
    """
    return torch.where(rows >= 0, values[rows.clamp(min=0)], 0)
