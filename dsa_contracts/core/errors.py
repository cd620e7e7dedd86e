"""The error tree of the project, its stable codes and the one renderer.

Every error is a `ContractError`, which derives from `Exception` alone: engines catch `AssertionError`, `ValueError` and
`RuntimeError` around their kernels, and a violated contract must not end in such a handler. The text of an error is its
headline and then one fact a line, the same text for the same violation, so that it can be compared and searched for.
"""

import re
from collections.abc import Mapping, Sequence

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
    "DSA106": "a tensor holds other rows, or rows in another order, than its contract names",
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


def add_codes(codes: Mapping[str, str]) -> None:
    """Add the codes of a vocabulary.

    Args:
        codes: by code, two letters or more and three digits as in `RING101`, what raises it.

    Raises:
        ContractDefinitionError: DSA001, a code has another form, or stands for something else already.
    """
    for code, meaning in codes.items():
        if not _CODE.fullmatch(code):
            raise ContractDefinitionError(f"{code!r} is no code; a code is capital letters and three digits, as in RING101")
        if CODES.get(code, meaning) != meaning:
            raise ContractDefinitionError(f"{code} stands for {CODES[code]!r} already")
    ordered = sorted((CODES | dict(codes)).items())
    CODES.clear()
    CODES.update(ordered)


def know_code(code: str) -> None:
    """Raise ContractDefinitionError DSA001 unless a code is known, here or in a vocabulary that is installed."""
    if code in CODES:
        return
    from dsa_contracts.core.extensions import load_vocabularies

    load_vocabularies()
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
