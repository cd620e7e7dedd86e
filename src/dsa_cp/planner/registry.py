"""Backends that a user adds: capability records from JSON or TOML files, beside those of the package, without code.

A file holds a list `backends` of tables with the fields of `dsa_cp.planner.backends.Capability`. A fact is a table of
`value` and `source`; a fact that is left out is unknown, and has the value that can do no harm.
"""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.core.extensions import Registry
from dsa_contracts.dsa.row_formats import KV_FORMATS
from dsa_cp.planner.backends import CAPABILITIES, Capability
from dsa_cp.planner.plan_files import first_fault, read_text

UNKNOWN = "unknown: the file does not say"

_UNKNOWN_VALUES: dict[str, Any] = {
    "halves_strides": "Contiguous",
    "zero_length_rows": False,
    "lse": "not returned",
    "topk_widths": [],
    "block_table_widths": [],
    "page_sizes": [],
    "head_counts": [],
    "devices": [],
    "layouts": [],
    "context_parallel": [],
}
"""Rules that are unknown are not checked; context parallelism that is not declared is refused."""

_RECORD = TypeAdapter(Capability)


def read_capabilities(path: Path, known: Mapping[str, Capability] = CAPABILITIES) -> Mapping[str, Capability]:
    """Return the known backends and those of a file.

    Args:
        path: a `.json` or `.toml` file.
        known: the backends that there are; a file cannot redefine one.

    Raises:
        ArgumentError: DSA602, the file cannot be read or parsed, or its first fault is as the message says.
    """
    data = _parse(path)
    if not isinstance(data, dict) or set(data) != {"backends"} or not isinstance(data["backends"], list):
        raise ArgumentError(f"{path}: must hold one list, backends, of capability records")
    added: dict[str, Capability] = {}
    for at, record in enumerate(data["backends"]):
        capability = _capability(record, f"{path}: backends[{at}]")
        if capability.name in known or capability.name in added:
            raise ArgumentError(f"{path}: backends[{at}]: {capability.name} is a backend already; choose another name")
        added[capability.name] = capability
    return known.extended(added) if isinstance(known, Registry) else {**known, **added}


def _parse(path: Path) -> Any:
    """Return what a file holds, by its suffix."""
    text = read_text(path)
    try:
        return tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{path}: is no {'TOML' if path.suffix == '.toml' else 'JSON'} ({error})") from error


def _capability(record: Any, where: str) -> Capability:
    """Return the capability of one record, what it leaves out filled in as unknown."""
    if not isinstance(record, dict):
        raise ArgumentError(f"{where} is no table")
    unknown = {name: {"value": value, "source": UNKNOWN} for name, value in _UNKNOWN_VALUES.items()}
    filled = {"rotates": [], "needs": [], **unknown, **record}
    try:
        capability = _RECORD.validate_json(json.dumps(filled, default=str), strict=True)
    except ValidationError as error:
        raise ArgumentError(f"{where}: {first_fault(error)}") from error
    named = [way.row_format for way in capability.reads] + [way.row_format for way in capability.rotates]
    for row_format in named:
        if row_format not in KV_FORMATS:
            raise ArgumentError(f"{where}: row format {row_format!r} is not known; known are {', '.join(KV_FORMATS.known())}")
    return capability
