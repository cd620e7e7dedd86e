"""What the docstring of a contract stub says, part by part: the house keeps Google style, so that it can be read."""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass

from dsa_contracts.core.errors import CODES

_SECTION = re.compile(r"^(Args|Returns|Raises|Source):\s*", re.MULTILINE)
_FACT = re.compile(r"\b(Row order|Aliasing|Sync|Rounding):\s*")
_ENTRY = re.compile(r"^(\w+): ", re.MULTILINE)
_RANGE = re.compile(r"(DSA\d{3})(?:\s+to\s+(DSA\d{3}))?")


@dataclass(frozen=True)
class DocFacts:
    """The parts of a stub's docstring; an empty text where a part is missing.

    Attributes:
        summary: the first line: what holds after the call.
        args: meaning of each parameter.
        returns: meaning of each return value; under an empty name where there is one only.
        raises: codes that each error class is raised with, ranges written out.
        facts: row order, aliasing, sync and rounding, by their written names.
        source: upstream file and version, or paper.
    """

    summary: str
    args: dict[str, str]
    returns: dict[str, str]
    raises: dict[str, tuple[str, ...]]
    facts: dict[str, str]
    source: str


def read_docstring(function: Callable[..., object]) -> DocFacts:
    """Return the parts of a function's docstring."""
    return parse_docstring(inspect.getdoc(function) or "")


def parse_docstring(text: str) -> DocFacts:
    """Return the parts of a docstring whose indentation is taken off."""
    parts = _SECTION.split(text)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    summary = " ".join(parts[0].partition("\n\n")[0].split())
    paragraphs = [part for part in text.split("\n\n") if _FACT.match(part)]
    pieces = _FACT.split("\n".join(paragraphs))
    facts = {name: " ".join(said.split()) for name, said in zip(pieces[1::2], pieces[2::2], strict=True)}
    raises = {name: _codes(said) for name, said in _entries(sections.get("Raises", "")).items()}
    source = " ".join(sections.get("Source", "").split())
    returned = _until_blank(sections.get("Returns", ""))
    return DocFacts(summary, _entries(sections.get("Args", "")), _returns(returned), raises, facts, source)


def _until_blank(text: str) -> str:
    """Return a section up to its first empty line."""
    return text.partition("\n\n")[0]


def _entries(section: str) -> dict[str, str]:
    """Return the entries `name: text` of a section, their further lines joined."""
    body = inspect.cleandoc(_until_blank(section))
    parts = _ENTRY.split(body)
    return {name: " ".join(said.split()) for name, said in zip(parts[1::2], parts[2::2], strict=True)}


def _returns(section: str) -> dict[str, str]:
    """Return what is said of the return values: by name where the names are written, else as one text."""
    named = _entries(section)
    body = inspect.cleandoc(section)
    if named and body.startswith(f"{next(iter(named))}: "):
        return named
    return {"": " ".join(body.split())} if body else {}


def _codes(text: str) -> tuple[str, ...]:
    """Return the codes of a text; a range stands for all codes there are between its ends."""
    found: list[str] = []
    for first, last in _RANGE.findall(text):
        found += [code for code in CODES if first <= code <= (last or first)]
    return tuple(dict.fromkeys(found))
