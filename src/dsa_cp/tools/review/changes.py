"""One change between two sets of contracts: what changed, for whom it breaks, for whom it does not."""

from collections.abc import Iterable
from dataclasses import dataclass

CALLERS = "callers"
IMPLEMENTATIONS = "implementations"
KERNELS = "kernel authors"
READERS = "readers of errors"


@dataclass(frozen=True)
class Change:
    """One changed fact.

    Attributes:
        where: stage and parameter, as in `rope_quantize.k_rope`, or another part of the contracts.
        what: the changed fact, with what it was and what it is.
        breaks: those who must change something.
        fits: those whom it concerns and who need change nothing.
    """

    where: str
    what: str
    breaks: tuple[str, ...]
    fits: tuple[str, ...] = ()

    @property
    def severity(self) -> str:
        """`breaking` where anybody must change something, else `compatible`."""
        return "breaking" if self.breaks else "compatible"

    @property
    def line(self) -> str:
        """The change in a line."""
        whom = ", ".join(self.breaks or self.fits)
        rest = f" (compatible for {', '.join(self.fits)})" if self.breaks and self.fits else ""
        return f"{self.severity:<10} {self.where}: {self.what}; for {whom}{rest}"

    def as_json(self) -> dict[str, object]:
        """Return the change as one object."""
        return {
            "severity": self.severity,
            "where": self.where,
            "what": self.what,
            "breaks": list(self.breaks),
            "fits": list(self.fits),
        }


def replaced(where: str, fact: str, before: str, after: str, breaks: tuple[str, ...], fits: tuple[str, ...] = ()) -> Change:
    """Return the change of one fact from one text to another."""
    return Change(where, f"{fact} {before} -> {after}", breaks, fits)


def breaking_first(changes: Iterable[Change]) -> list[Change]:
    """Return changes in their order, those that break first."""
    return sorted(changes, key=lambda change: not change.breaks)
