"""Where a rank's rows stand among its padded ones, where a stage takes the rows themselves."""

from dsa_contracts import CpBatch
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import rebuild_positions


def layer(batch: CpBatch[Zigzag]) -> None:
    rebuild_positions(batch.positions, batch.local_rows, batch)
    rebuild_positions(batch.positions, batch.padded_index, batch)  # refused
