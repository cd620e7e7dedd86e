"""What a group of ranks that reach each other's memory offers, for those who need not import it: its machine has GPUs."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class SharesPools(Protocol):
    """A group that makes pools which its ranks reach: a `SymmetricComm`."""

    def new_pools(self, count: int, shape: Sequence[int]) -> list[Tensor]:
        """Return zeroed pools of uint8, the same call on every rank."""


def sharing_pools(comm: object) -> SharesPools | None:
    """Return a group that shares pools as such, None for any other."""
    return comm if isinstance(comm, SharesPools) else None
