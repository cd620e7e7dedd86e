"""What a collective stage needs from a group of ranks: bytes moved, and a way to fail together."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, Protocol, runtime_checkable

from torch import Tensor

from dsa_contracts.core.errors import ArgumentError, ContractError, NotShownError, RankError


@runtime_checkable
class Group(Protocol):
    """A group of ranks, as one of them sees it: who is in it, and how they fail together.

    Development mode uses `agree` and `fail`: a violation on one rank must not leave the others waiting in a collective. A
    parameter whose type is this protocol, or one that is derived from it, makes the contract that of a collective stage.
    """

    @property
    def size(self) -> int:
        """Ranks of the group."""

    @property
    def rank(self) -> int:
        """This rank."""

    def agree(self, fingerprint: str) -> None:
        """Return once every rank has come with the same fingerprint.

        Sync: collective, on the host; touches no device.

        Raises:
            RankError: DSA501 where fingerprints differ, DSA502 where a rank failed or ended, DSA503 where one did not
                come within five seconds; the same text on every rank, naming every rank's value.
        """

    def fail(self, reason: str) -> RankError:
        """Tell all ranks that this one failed, and return the error that they raise."""

    def done(self) -> None:
        """Tell all ranks that this one makes no further collective; ranks that wait for it raise RankError DSA502."""


@runtime_checkable
class Comm(Group, Protocol):
    """A group that moves bytes."""

    def all_gather(self, rows: Tensor) -> Tensor:
        """Gather the same number of rows from every rank.

        Args:
            rows: uint8 [n, width], contiguous; n and width the same on every rank.

        Returns:
            uint8 [size * n, width], new memory, rank after rank.

        Sync: collective; every rank must call it, in the same order.

        Raises:
            RankError: DSA502 where another rank failed or ended, DSA503 where one did not come in time.
        """


@runtime_checkable
class Exchange(Comm, Protocol):
    """A group that also moves rows from each rank to each, so many as the two of them say."""

    def all_to_all(self, rows: Tensor, send: Sequence[int], take: Sequence[int]) -> Tensor:
        """Send each rank its rows and take those that each rank sends here.

        Args:
            rows: uint8 [n, width], contiguous: those for rank 0, then those for rank 1, and so on; the same width on
                every rank.
            send: how many of them each rank gets, in rank order; `n` in all.
            take: how many rows each rank sends here, in rank order.

        Returns:
            uint8 [sum(take), width], new memory, sender after sender.

        Sync: collective; every rank must call it, in the same order, also one that sends and takes nothing.

        Raises:
            RankError: DSA501 where rows or counts of the ranks do not fit together, DSA502 where a rank failed, ended, or
                has counts that are none of its rows, DSA503 where one did not come in time.
        """


class PassiveComm:
    """A group for calls that are only watched: it moves nothing, waits for nobody, and notes what ranks should agree on.

    Attributes:
        size: ranks of the group that the watched call uses.
        rank: this rank.
        agreed: what each collective stage was called with, in order, to be compared between ranks afterwards; the latest
            `LATEST_LIMIT` of them.
    """

    LATEST_LIMIT: ClassVar[int] = 1024

    def __init__(self, size: int, rank: int) -> None:
        """Watch one rank of a group; raises ArgumentError DSA602 unless `0 <= rank < size`."""
        if not 0 <= rank < size:
            raise ArgumentError(f"rank is {rank} of {size}; it must be in 0..{size - 1}")
        self.size, self.rank = size, rank
        self.agreed: deque[str] = deque(maxlen=self.LATEST_LIMIT)

    def all_gather(self, rows: Tensor) -> Tensor:
        """Raise NotShownError: what other ranks hold is not looked at."""
        raise NotShownError("a watched call adds no collective; what other ranks hold is not shown")

    def all_to_all(self, rows: Tensor, send: Sequence[int], take: Sequence[int]) -> Tensor:
        """Raise NotShownError: what other ranks send is not looked at."""
        raise NotShownError("a watched call adds no collective; what other ranks send is not shown")

    def agree(self, fingerprint: str) -> None:
        """Note what the ranks of the collective should agree on."""
        self.agreed.append(fingerprint)

    def fail(self, reason: str) -> RankError:
        """Return the error of this rank; no other rank is told."""
        return RankError(reason, code="DSA502")

    def done(self) -> None:
        """Do nothing: no rank waits for this one."""


@contextmanager
def guard(comm: Group) -> Iterator[None]:
    """Run one rank's part of a path so that its failure reaches all ranks.

    Raises:
        RankError: DSA502, the same text on every rank, from the error that was raised here.
    """
    try:
        yield
    except RankError:
        raise
    except BaseException as error:
        reason = str(error) if isinstance(error, ContractError) else f"{type(error).__name__}: {error}"
        raise comm.fail(reason) from error
    finally:
        comm.done()


def describe_values(headline: str, values: dict[int, str], code: str) -> RankError:
    """Return a RankError that names every rank's value, in rank order."""
    facts = [(f"rank {rank}", values[rank]) for rank in sorted(values)]
    return RankError(headline, code=code, facts=facts)
