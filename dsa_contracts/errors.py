"""The error tree of the project, its stable codes and the one renderer.

Every error is a `ContractError`, which derives from `Exception` alone: engines catch `AssertionError`, `ValueError` and
`RuntimeError` around their kernels, and a violated contract must not end in such a handler. The text of an error is its
headline and then one fact a line, the same text for the same violation, so that it can be compared and searched for.
"""

from collections.abc import Sequence

CODES: dict[str, str] = {
    "DSA001": "a contract stub is not well formed, or one of its annotations does not resolve",
    "DSA002": "an implementation does not have the signature of its contract",
    "DSA003": "the mode is not one of development, values, production",
    "DSA101": "an argument has the wrong type, or is missing",
    "DSA102": "a dim differs from the value bound for this batch or this call",
    "DSA103": "a tensor has another dtype than its contract names",
    "DSA104": "a tensor has strides that its contract does not allow",
    "DSA105": "tensors of one call are on different devices",
    "DSA106": "a tensor holds other rows, or rows in another order, than its contract names",
    "DSA107": "a tensor is in another RoPE or packing state than its contract names",
    "DSA108": "a tensor was made for another batch or another layer",
    "DSA109": "a tensor has another number of dims than its contract names",
    "DSA110": "the width of a packed row is not the width of its row format",
    "DSA111": "the cos/sin table does not fit: too few rows for the positions, the wrong width, or other numbers",
    "DSA112": "a scale is not finite and positive, or is not 1 where nothing is quantised",
    "DSA113": "the collective group is not the context-parallel group of the batch",
    "DSA114": "the KV pool, its page size and its page table do not fit together, or are not those of the batch",
    "DSA115": "a position is not prefix + index of its row",
    "DSA116": "a slot is out of range, used twice, not that of its row, or does not hold its row after the write",
    "DSA117": "a per-row length is not position + 1 of its row",
    "DSA118": "a top-k entry is neither -1 nor below the length of its row, or a list is not full",
    "DSA119": "row indices, or rows put in order by them, are not those of this rank, layout and batch",
    "DSA120": "a padding row is not inert",
    "DSA121": "a row that attends to nothing does not have out 0 and lse -inf",
    "DSA122": "gathered rows are not in the order of the ranks of the group",
    "DSA123": "an output shares its tensor object with an input",
    "DSA124": "the number of heads or a head dim does not fit the model of the batch",
    "DSA125": "nothing states which rows a tensor holds, in which order, and no value of it can show it",
    "DSA201": "a return value has the wrong type, or is missing",
    "DSA202": "a returned dim differs from the value bound for this batch or this call",
    "DSA203": "a returned tensor has another dtype than its contract names",
    "DSA204": "a returned tensor has strides that its contract does not allow",
    "DSA205": "a returned tensor is on another device than the arguments",
    "DSA209": "a returned tensor has another number of dims than its contract names",
    "DSA301": "lengths of a batch do not fit together",
    "DSA302": "a context-parallel size or rank is not legal",
    "DSA303": "a layout does not cover the batch: rows lost, doubled, or padded to too few",
    "DSA304": "metadata that the backend or the batch needs is missing",
    "DSA401": "no plan fits: a capability is missing",
    "DSA402": "a plan does not fit the contracts of its stages",
    "DSA501": "ranks came to a collective with different facts",
    "DSA502": "a rank failed, or ended, while others waited in a collective",
    "DSA503": "a rank did not come to a collective in time",
    "DSA601": "a trace file is not readable as one",
    "DSA602": "an argument is not legal",
}


class ContractError(Exception):
    """A violated promise: `code` is stable, `headline` is one line, `facts` are labelled lines under it."""

    default_code = "DSA001"

    def __init__(self, headline: str, *, code: str | None = None, facts: Sequence[tuple[str, str]] = ()) -> None:
        """Store the parts of the message; a fact with an empty text is left out."""
        self.code = code or self.default_code
        if self.code not in CODES:
            raise KeyError(f"{self.code} is not in CODES")
        self.headline = headline
        self.facts = tuple((label, text) for label, text in facts if text)
        super().__init__(self.render())

    def render(self) -> str:
        """Return the whole message: the headline, then one labelled fact a line."""
        lines = [f"{type(self).__name__} {self.code}: {self.headline}"]
        lines += [f"  {label:<9} {text}" for label, text in self.facts]
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        """Survive pickling, so that an error raised in a rank's process reaches its parent whole."""
        return _rebuild, (type(self), self.headline, self.code, self.facts)


def _rebuild(kind: type[ContractError], headline: str, code: str, facts: Sequence[tuple[str, str]]) -> ContractError:
    return kind(headline, code=code, facts=facts)


class ContractDefinitionError(ContractError):
    """A contract or its implementation is itself wrong; raised at import."""

    default_code = "DSA001"


class StageInputError(ContractError):
    """A stage was given something that its contract does not allow."""

    default_code = "DSA101"


class StageOutputError(ContractError):
    """A stage returned something that its contract does not allow."""

    default_code = "DSA201"


class BatchError(ContractError):
    """The facts of a batch do not fit together."""

    default_code = "DSA301"


class PlanError(ContractError):
    """No plan, or not this plan, fits."""

    default_code = "DSA401"


class RankError(ContractError):
    """Ranks disagree, or one of them failed; every rank raises it with the same text."""

    default_code = "DSA501"


class TraceError(ContractError):
    """A trace file cannot be read."""

    default_code = "DSA601"


class ArgumentError(ContractError):
    """A public function or the command line was given a value that is not legal."""

    default_code = "DSA602"
