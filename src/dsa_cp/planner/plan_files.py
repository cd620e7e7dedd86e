"""Plans from files: written by hand or by `dsa-cp plan --json`. What is derived from options and stages may be left out."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dsa_contracts.core.errors import ArgumentError
from dsa_cp.planner.backends import CAPABILITIES, Capability
from dsa_cp.planner.making import rejected
from dsa_cp.planner.options import PlanOptions
from dsa_cp.planner.plan import PLAN_VERSION, Plan, plan_facts
from dsa_cp.planner.refusals import ask
from dsa_cp.planner.replay import replay


def read_plan(path: Path, capabilities: Mapping[str, Capability] = CAPABILITIES) -> Plan:
    """Return the plan in a JSON file.

    Raises:
        ArgumentError: DSA602, the file cannot be read, is no plan, is of a newer version, or has a key that no plan has.
        PlanError: DSA401, its options cannot work; DSA402, its stages do not fit, with the stage and the facts that clash.
    """
    return plan_from_json(read_text(path), str(path), capabilities)


def read_text(path: Path) -> str:
    """Return the text of a file; raises ArgumentError DSA602 where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise ArgumentError(f"{path}: cannot be read ({reason})") from error


def plan_from_json(text: str, name: str = "plan", capabilities: Mapping[str, Capability] = CAPABILITIES) -> Plan:
    """Return the plan in a JSON text; see `read_plan`. `name` stands for the file in messages."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{name}: is no JSON ({error})") from error
    _check_version(data, name)
    try:
        # Options first: what they and the stages determine is filled in where the file leaves it out.
        options = PlanOptions.model_validate_json(json.dumps(data.get("options", {})))
        stages = _stages(data, name)
        question = ask(options, capabilities)
        derived = plan_facts(question, stages)
        path = replay(stages, type(options.made_layout))
        filled: dict[str, Any] = {"rejected": rejected(question, path), **derived}
        given = {key: value for key, value in data.items() if key not in ("options", "stages")}
        shown = json.dumps({**{key: _plain(value) for key, value in filled.items()}, **given, "options": data["options"]})
        return Plan.model_validate_json(shown, context={"capabilities": capabilities})
    except ValidationError as error:
        raise ArgumentError(f"{name}: {first_fault(error)}") from error


def _plain(value: Any) -> Any:
    """Return a field as JSON has it."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def _check_version(data: Any, name: str) -> None:
    """Raise ArgumentError DSA602 for what is no plan, or a newer one."""
    if not isinstance(data, dict):
        raise ArgumentError(f"{name}: is no plan; a plan is an object with options and stages")
    kind, version = data.get("kind", "dsa-cp plan"), data.get("version", PLAN_VERSION)
    if kind != "dsa-cp plan":
        raise ArgumentError(f"{name}: kind is {kind!r}; a plan has kind 'dsa-cp plan', or none")
    if isinstance(version, int) and version > PLAN_VERSION:
        raise ArgumentError(f"{name}: version {version} is newer than {PLAN_VERSION}, the newest that is read here")
    for key in data:
        if key not in Plan.model_fields:
            raise ArgumentError(f"{name}: {key} is not a key of plans; those are {', '.join(Plan.model_fields)}")


def _stages(data: dict[str, Any], name: str) -> tuple[str, ...]:
    """Return the stages of a plan; raises ArgumentError DSA602 where they are no list of names."""
    stages = data.get("stages")
    if not isinstance(stages, list) or not all(isinstance(stage, str) for stage in stages):
        raise ArgumentError(
            f"{name}: stages must be a list of stage names, as ['rope_quantize', 'all_gather_kv', 'write_kv']"
        )
    return tuple(stages)


def first_fault(error: ValidationError) -> str:
    """Return the first fault that pydantic found, in one line: where, and what is allowed."""
    fault = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in fault["loc"])
    if fault["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"{where} is not a key that is known here"
    message = str(fault["msg"])
    return f"{where}: {message[:1].lower()}{message[1:]}" if where else message
