"""Requests in the Mooncake trace format: JSON lines of timestamp, input_length, output_length and hash_ids.

A line that does not fit is refused with its file, line number and field; nothing is guessed or skipped but blank lines.
Fields that the format does not have are accepted, since other exporters add some.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.dsa.codes import TraceError

BLOCK_TOKENS = 512
"""Tokens of the prompt that one hash id stands for; the last block of a prompt may hold fewer."""

_SHOWN_CHARS = 40

_EXPECTED = {
    "timestamp": "an integer, in ms",
    "input_length": "an integer of at least 1",
    "output_length": "an integer of at least 1",
    "hash_ids": "a list of integers of at least 0",
}


@dataclass(frozen=True)
class TraceRequest:
    """One request of a trace.

    Attributes:
        timestamp: arrival in ms; need not grow from line to line.
        input_length: tokens of the prompt, at least 1.
        output_length: tokens of the answer, at least 1.
        hash_ids: one id per 512-token block of the prompt; equal leading ids mean a shared prefix.
    """

    timestamp: Annotated[int, Field(strict=True)]
    input_length: Annotated[int, Field(strict=True, ge=1)]
    output_length: Annotated[int, Field(strict=True, ge=1)]
    hash_ids: tuple[Annotated[int, Field(strict=True, ge=0)], ...]


_REQUEST = TypeAdapter(TraceRequest)


def num_blocks(tokens: int) -> int:
    """Return how many blocks hold `tokens` tokens, the last one full or not."""
    return -(-tokens // BLOCK_TOKENS)


def read_trace(path: Path, limit: int | None = None) -> tuple[TraceRequest, ...]:
    """Return the requests of a trace file, in file order.

    Args:
        path: a UTF-8 file with one JSON object a line.
        limit: read no more than this many requests; lines after them are not looked at.

    Returns:
        At least one request.

    Raises:
        TraceError: DSA601, the file cannot be read, holds no request, or its first bad line is as the message says.
        ArgumentError: DSA602, `limit` is below 1.
    """
    if limit is not None and limit < 1:
        raise ArgumentError(f"limit is {limit}, expected at least 1")
    try:
        with path.open("rb") as lines:
            requests = tuple(_requests(str(path), lines, limit))
    except OSError as error:
        reason = error.strerror or str(error)
        raise TraceError(f"{path}: cannot be read ({reason}), expected a file of JSON lines; check the path") from error
    if not requests:
        raise TraceError(f"{path}: holds no request, expected at least one JSON line; check the path")
    return requests


def default_trace() -> tuple[TraceRequest, ...]:
    """Return the requests that ship with the package: the first 64 of Mooncake's conversation trace.

    Source: github.com/kvcache-ai/Mooncake, FAST25-release/traces/conversation_trace.jsonl, Apache-2.0 (data/README.md).
    """
    with resources.as_file(resources.files("dsa_cp.demo") / "data" / "conversation_head.jsonl") as path:
        return read_trace(path)


def _requests(name: str, lines: Iterable[bytes], limit: int | None) -> Iterator[TraceRequest]:
    found = 0
    for number, line in enumerate(lines, start=1):
        if found == limit:
            return
        if line.strip():
            yield _parse(f"{name}:{number}", line)
            found += 1


def _parse(where: str, line: bytes) -> TraceRequest:
    record, constants = _decode(where, line)
    if not isinstance(record, dict):
        fields = ", ".join(_EXPECTED)
        raise TraceError(f"{where}: found {_shown(record)}, expected a JSON object with the fields {fields}")
    try:
        request = _REQUEST.validate_python(record)
    except ValidationError as error:
        raise TraceError(f"{where}: {_field_message(error)}; fix it or remove the line") from error
    if constants:
        raise TraceError(f"{where}: is not JSON ({constants[0]} is no JSON number); fix it or remove the line")
    found, wanted = len(request.hash_ids), num_blocks(request.input_length)
    if found != wanted:
        reason = f"one per {BLOCK_TOKENS} tokens of input_length {request.input_length}"
        raise TraceError(f"{where}: hash_ids: found {found} ids, expected {wanted}, {reason}; fix it or remove the line")
    return request


def _decode(where: str, line: bytes) -> tuple[object, list[str]]:
    """Return the line's value, and the NaN and Infinity literals that Python reads in it although JSON has none.

    They are handed on as floats, so that the check of the fields can name the field.
    """
    constants: list[str] = []

    def note_constant(literal: str) -> float:
        constants.append(literal)
        return float(literal)

    try:
        return json.loads(line.decode("utf-8").strip(), parse_constant=note_constant), constants
    except UnicodeDecodeError as error:
        raise TraceError(f"{where}: byte {error.start + 1} of the line is not UTF-8; save the file as UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{where}: is not JSON ({_reason(error)}), expected one JSON object a line; fix it") from error


def _field_message(error: ValidationError) -> str:
    """Return what is wrong with the first bad field."""
    first = error.errors(include_url=False, include_context=False)[0]
    field, *index = (str(part) for part in first["loc"])
    if first["type"] == "missing":
        return f"{field}: is missing, expected {_EXPECTED[field]}"
    if index:
        return f"{field}[{index[0]}]: found {_shown(first['input'])}, expected an integer of at least 0"
    return f"{field}: found {_shown(first['input'])}, expected {_EXPECTED[field]}"


def _shown(value: object) -> str:
    """Return the value as JSON in ASCII, cut to a length that fits a message."""
    text = json.dumps(value)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."


def _reason(error: ValueError | RecursionError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at column {error.colno}"
    return "nested too deeply" if isinstance(error, RecursionError) else "a number has too many digits"
