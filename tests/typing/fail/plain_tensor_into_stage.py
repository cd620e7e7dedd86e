"""A tensor of which nobody says what it holds: it enters the path through `declare`, or not at all."""

from torch import Tensor

from dsa_contracts import CpBatch
from dsa_cp.layouts import Zigzag
from dsa_cp.stages import rebuild_positions


def layer(positions: Tensor, batch: CpBatch[Zigzag]) -> None:
    rebuild_positions(positions, batch.local_rows, batch)  # refused
