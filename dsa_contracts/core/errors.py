"""The error tree of the project, its stable codes and the one renderer.

Every error is a `ContractError`, which derives from `Exception` alone: engines catch `AssertionError`, `ValueError` and
`RuntimeError` around their kernels, and a violated contract must not end in such a handler. The text of an error is its
headline and then one fact a line, the same text for the same violation, so that it can be compared and searched for.
"""

import re
from collections.abc import Callable, Mapping, Sequence

_CODE = re.compile(r"[A-Z]{2,12}[0-9]{3}")

CODES: dict[str, str] = {
    "DSA001": "a contract stub is not well formed, or one of its annotations does not resolve",
    "DSA002": "an implementation does not have the signature of its contract",
    "DSA003": "the mode is not one of development, values, production",
    "DSA101": "an argument has the wrong type, or is missing",
    "DSA102": "a dim differs from the value bound for this scope or this call",
    "DSA103": "a tensor has another dtype than its contract names",
    "DSA104": "a tensor has strides that its contract does not allow",
    "DSA105": "tensors of one call are on different devices",
    "DSA106": "a tensor holds other rows, or rows in another order, than its contract names, or comes from elsewhere",
    "DSA107": "a tensor is in another state than its contract names",
    "DSA108": "a tensor was made for another scope or another layer",
    "DSA109": "a tensor has another number of dims than its contract names",
    "DSA123": "an output shares its tensor object with an input",
    "DSA125": "nothing states which rows a tensor holds, in which order, and no value of it can show it",
    "DSA201": "a return value has the wrong type, or is missing",
    "DSA202": "a returned dim differs from the value bound for this scope or this call",
    "DSA203": "a returned tensor has another dtype than its contract names",
    "DSA204": "a returned tensor has strides that its contract does not allow",
    "DSA205": "a returned tensor is on another device than the arguments",
    "DSA209": "a returned tensor has another number of dims than its contract names",
    "DSA501": "ranks came to a collective with different facts",
    "DSA502": "a rank failed, or ended, while others waited in a collective",
    "DSA503": "a rank did not come to a collective in time",
    "DSA602": "an argument is not legal",
}
"""Every code, and what raises it. A vocabulary adds its own with `add_codes`, in its own letters or in these."""


TRIES: dict[str, str] = {
    "DSA001": "give every parameter and return value an annotation that resolves at import",
    "DSA002": "give the implementation the parameters of its contract, in their order",
    "DSA003": "set the variable to one of the modes, or unset it",
    "DSA101": "pass every argument that the contract names, each of the type that it names",
    "DSA102": "pass a tensor of the bound size: a dim has one size in all calls of its scope",
    "DSA103": "view bytes with .view(dtype); a .to(dtype) changes the values",
    "DSA104": "pass a tensor with those strides, or .contiguous() where a copy is meant",
    "DSA105": "move the tensor to the device of the others before the stage",
    "DSA106": "pass the rows that the contract names; a stage that gathers or reorders rows comes before this one",
    "DSA107": "call the stage that brings the tensor into that state first, and only once",
    "DSA108": "pass what a stage made in this scope and layer; nothing is kept from the one before",
    "DSA109": "give the tensor those dims with .view before the stage",
    "DSA123": "return a view of it: a brand is on an object",
    "DSA125": "pass what a stage returned, or state it with dsa_contracts.declare where it enters the path",
    "DSA201": "return every value that the contract names, each of the type that it names",
    "DSA202": "return as many rows and columns as the contract says; a bound dim names who bound it",
    "DSA203": "convert the values in the stage, before they are returned",
    "DSA204": "return a tensor with those strides, or .contiguous() where a copy is meant",
    "DSA205": "make the result on the device of the arguments",
    "DSA209": "give the result those dims with .view in the stage",
    "DSA501": "compare the values by rank; every rank makes the same collectives with the same facts, in one order",
    "DSA502": "mend what the rank that failed says; the other ranks only waited for it",
    "DSA503": "look where the rank that did not come is; every rank makes every collective, in one order",
    "DSA602": "pass a value that the message names as legal",
}
"""What to do about every code, where neither the contract nor the fault has better advice."""


def add_codes(codes: Mapping[str, str], tries: Mapping[str, str]) -> None:
    """Add the codes of a vocabulary.

    Args:
        codes: by code, two letters or more and three digits as in `RING101`, what raises it.
        tries: by the same codes, what to do about it where nothing more is known.

    Raises:
        ContractDefinitionError: DSA001, a code has another form, stands for something else already, or has no advice.
    """
    missing = sorted(codes.keys() ^ tries.keys())
    if missing:
        raise ContractDefinitionError(f"codes and advice do not name the same: {', '.join(missing)}")
    for code, meaning in codes.items():
        if not _CODE.fullmatch(code):
            raise ContractDefinitionError(f"{code!r} is no code; a code is capital letters and three digits, as in RING101")
        if CODES.get(code, meaning) != meaning:
            raise ContractDefinitionError(f"{code} stands for {CODES[code]!r} already")
    ordered = sorted((CODES | dict(codes)).items())
    CODES.clear()
    CODES.update(ordered)
    TRIES.update(tries)


_SOURCES: list[Callable[[], object]] = []
"""What may add codes when it is called; asked before a code is refused."""


def look_for_codes_in(source: Callable[[], object]) -> None:
    """Let a function add codes, by `add_codes`, when one is named that is not known; it is called each time."""
    _SOURCES.append(source)


def know_code(code: str) -> None:
    """Raise ContractDefinitionError DSA001 unless a code is known, here or in a vocabulary that is installed."""
    if code in CODES:
        return
    for source in _SOURCES:
        source()
    if code not in CODES:
        raise ContractDefinitionError(f"{code!r} is no known code", facts=[("try", "add_codes in its vocabulary")])


class ContractError(Exception):
    """A violated promise: `code` is stable, `headline` is one line, `facts` are labelled lines under it."""

    default_code = "DSA001"

    def __init__(self, headline: str, *, code: str | None = None, facts: Sequence[tuple[str, str]] = ()) -> None:
        """Store the parts of the message; a fact with an empty text is left out."""
        self.code = code or self.default_code
        know_code(self.code)
        self.headline = headline
        self.facts = tuple((label, text) for label, text in facts if text)
        super().__init__(self.render())

    def add_fact(self, label: str, text: str, *, after: str) -> None:
        """Add a fact behind another, where the message has that one and not this one yet; an empty text is left out."""
        labels = [known for known, _ in self.facts]
        if text and after in labels and label not in labels:
            at = labels.index(after) + 1
            self.facts = (*self.facts[:at], (label, text), *self.facts[at:])
            self.args = (self.render(),)

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


class RankError(ContractError):
    """Ranks disagree, or one of them failed; every rank raises it with the same text."""

    default_code = "DSA501"


class NotShownError(ContractError):
    """An invariant reads what a watched call does not show; such an invariant says nothing of the call."""

    default_code = "DSA602"


class ArgumentError(ContractError):
    """A public function or the command line was given a value that is not legal."""

    default_code = "DSA602"
