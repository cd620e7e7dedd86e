"""`contracts.lock.json`: the facts of all contracts, committed, so that a change of a contract is a line in a diff.

The body of an invariant is not in the lock, only its name, code, subject and statement: whether a changed check is weaker
or stronger is for its reader to say.
"""

import json
from pathlib import Path

from pydantic import ValidationError

from dsa_contracts.core.errors import ArgumentError
from dsa_cp.tools.review.contract_facts import ContractFacts
from dsa_cp.tools.whole_files import read_text

SCHEMA = 1
"""Version of the lock's own form; another one is refused."""


def lock_text(facts: ContractFacts) -> str:
    """Return the lock of contracts: one text for the same facts."""
    content = {"schema": SCHEMA, **facts.model_dump(mode="json")}
    return json.dumps(content, indent=1, ensure_ascii=True) + "\n"


def read_lock(path: Path) -> ContractFacts:
    """Return the facts that a lock holds; `-` is standard input.

    Raises:
        ArgumentError: DSA602, the file cannot be read, is no lock, or is of another schema version.
    """
    return parse_lock(read_text(path), str(path))


def parse_lock(text: str, name: str) -> ContractFacts:
    """Return the facts of a lock's text; raises ArgumentError DSA602 as `read_lock` does, with this name of the file."""
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise ArgumentError(f"{name} is no JSON: {error.msg}, line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise ArgumentError(f"{name} is no lock: it is nested too deeply") from None
    schema = content.pop("schema", None) if isinstance(content, dict) else None
    if not isinstance(schema, int) or isinstance(schema, bool):
        raise ArgumentError(f"{name} is no lock of contracts: it has no schema number")
    if schema != SCHEMA:
        kind, advice = ("a newer", "update dsa-cp") if schema > SCHEMA else ("an older", "write it again with --write-lock")
        raise ArgumentError(f"{name} is of {kind} version, schema {schema}; this dsa-cp reads schema {SCHEMA}: {advice}")
    try:
        return ContractFacts.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"])
        raise ArgumentError(f"{name} is no lock of contracts: {where}: {first['msg'].lower()}") from None
