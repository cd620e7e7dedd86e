"""The pages of a table that a batch uses."""

from torch import Tensor

from dsa_contracts.dsa.batch import CpBatch
from dsa_contracts.dsa.layout import Layout


def used_pages(table: Tensor, batch: CpBatch[Layout]) -> list[Tensor]:
    """Return for each request the pages of a table that its keys lie on; what stands behind them is free."""
    return [table[request, : -(-seq_len // batch.page_size)] for request, seq_len in enumerate(batch.seq_lens)]
