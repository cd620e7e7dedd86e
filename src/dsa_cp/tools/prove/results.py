"""What a proof attempt found."""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """How an attempt ended; `matched` is found on samples, and no proof."""

    PROVEN = "proven"
    REFUTED = "refuted"
    UNKNOWN = "unknown"
    MATCHED = "matched"


@dataclass(frozen=True)
class Counterexample:
    """The smallest lengths under which a fact is false.

    Attributes:
        extend_lens: new tokens of each request.
        prefix_lens: cached tokens of each request.
        padded_lens: new tokens with engine padding.
        row_alignment: the alignment of `nnz_padded`.
        about: what the fact is about: a rank, a piece of a request, a call of a stage.
        values: other values that matter, by name, as in `token`.
        what: what the value is that is wrong.
        says: what the formulas say.
        relation: how that must relate to `right`: `=`, `>=` or `<`.
        right: what is right.
        decodes: whether each request is a decode; empty where none is.
    """

    extend_lens: tuple[int, ...]
    prefix_lens: tuple[int, ...]
    padded_lens: tuple[int, ...]
    row_alignment: int
    about: str
    values: tuple[tuple[str, int], ...]
    what: str
    says: int | str
    relation: str
    right: int | str
    decodes: tuple[bool, ...] = ()

    @property
    def total(self) -> int:
        """Tokens of the batch, cached and padding ones counted."""
        return sum(self.padded_lens) + sum(self.prefix_lens)

    @property
    def order(self) -> tuple[int, int, int]:
        """What a smaller counter-example is smaller in: alignment, then tokens, then requests."""
        return self.row_alignment, self.total, len(self.padded_lens)

    def as_json(self) -> dict[str, object]:
        """Return the counter-example as one object."""
        return {
            "extend_lens": list(self.extend_lens),
            "prefix_lens": list(self.prefix_lens),
            "padded_lens": list(self.padded_lens),
            "row_alignment": self.row_alignment,
            "about": self.about,
            "values": dict(self.values),
            "what": self.what,
            "says": self.says,
            "relation": self.relation,
            "right": self.right,
            "decodes": [request for request, is_decode in enumerate(self.decodes) if is_decode],
        }


@dataclass(frozen=True)
class Result:
    """One attempt.

    Attributes:
        obligation: name of the fact.
        layout: written name of the layout.
        cp_size: ranks.
        requests: requests of the batch; None: any number of them, or many batches that were sampled.
        outcome: how it ended.
        goals: goals that were looked at; of what is sampled, batches.
        seconds: how long it took.
        counterexample: where it is refuted.
        open_goal: what the first goal was about that is neither proven nor refuted with lengths.
    """

    obligation: str
    layout: str
    cp_size: int
    requests: int | None
    outcome: Outcome
    goals: int
    seconds: float
    counterexample: Counterexample | None = None
    open_goal: str = ""

    @property
    def requests_text(self) -> str:
        """Requests of the batch in words."""
        if self.outcome is Outcome.MATCHED:
            return "sampled"
        return "any" if self.requests is None else str(self.requests)

    def as_json(self) -> dict[str, object]:
        """Return the result as one object."""
        return {
            "obligation": self.obligation,
            "layout": self.layout,
            "cp_size": self.cp_size,
            "requests": self.requests_text if self.requests is None else self.requests,
            "outcome": self.outcome.value,
            "goals": self.goals,
            "seconds": round(self.seconds, 3),
            "counterexample": None if self.counterexample is None else self.counterexample.as_json(),
            "open_goal": self.open_goal,
        }
