"""The request of each row, where a stage takes how many keys each row may see."""

from dsa_contracts import CpBatch
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import reorder_causal_lens


def layer(batch: CpBatch[Zigzag]) -> None:
    reorder_causal_lens(batch.causal_lens, batch.local_rows, batch)
    reorder_causal_lens(batch.request_of_row, batch.local_rows, batch)  # refused
