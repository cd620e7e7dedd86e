"""What a contract check costs by itself: the call of a stage as the path makes it, over a body that does nothing.

Calls are recorded from a run of a small model, so that arguments, brands and batches are those of the path.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args, get_origin
from unittest.mock import patch

import beartype
import jaxtyping
import torch
from torch import Tensor

import dsa_cp.stages as stages
from dsa_contracts import Comm, Mode, contract_of, stage
from dsa_contracts.core.contract import StageContract, resolve_hints
from dsa_contracts.core.runtime.observe import observe
from dsa_cp.comm import SimulatedGroup, run_ranks
from dsa_cp.demo.cells import BACKENDS, RunSpec, make_job
from dsa_cp.demo.run import run_rank
from dsa_cp.demo.schedule import build_schedule
from dsa_cp.demo.trace import TraceRequest
from dsa_cp.layer.kernel_sets import KERNEL_SETS, TorchKernels, observed
from dsa_cp.layer.models import MODELS
from dsa_cp.layouts import Zigzag
from dsa_cp.planner import make_plan
from dsa_cp.tools.bench.measure import Timing, time_host

WAYS = ("remembered", "watched", "hand-written asserts", "jaxtyping + beartype", "jaxtyping + typeguard")
FEW_CALLS = 100
"""Calls a repetition for the ways that take tens of microseconds."""


@dataclass(frozen=True)
class RecordedCall:
    """One call of a stage.

    Attributes:
        contract: the stage's contract.
        args: arguments by position.
        result: what it returned.
    """

    contract: StageContract
    args: tuple[Any, ...]
    result: Any


def record_calls(kv_formats: tuple[str, ...] = ("fp8", "bf16", "fp8_656")) -> dict[str, RecordedCall]:
    """Return the last call of every stage in a run of the small model on one rank, by name."""
    found: dict[str, RecordedCall] = {}
    schedule = build_schedule((TraceRequest(0, 300, 1, (0,)),))
    for kv_format in kv_formats:
        plan = make_plan(BACKENDS[kv_format], kv_format, cp_size=1)
        job = make_job(RunSpec(MODELS["tiny"], schedule, 1, 2), Zigzag(), plan)
        with _recording(found):
            run_ranks(1, lambda comm, job=job: run_rank(comm, job))  # type: ignore[misc]
    return found


@contextmanager
def _recording(found: dict[str, RecordedCall]) -> Iterator[None]:
    """Let the path note the last call of every stage."""
    with patch.dict(KERNEL_SETS, {"torch": observed(TorchKernels, partial(_note, found))}):
        yield


def _note(found: dict[str, RecordedCall], name: str, args: tuple[object, ...], result: object) -> None:
    # The group of the run has ended when its calls are made again; a group of one rank waits for nobody.
    again = tuple(SimulatedGroup(1).comm(0) if isinstance(arg, Comm) else arg for arg in args)
    found[name] = RecordedCall(contract_of(getattr(stages, name)), again, result)


def empty_body(call: RecordedCall) -> Callable[..., Any]:
    """Return a function with the parameters and annotations of a stage that returns what the recorded call returned.

    Tensors are new objects each time, as those of a stage are.
    """
    space: dict[str, Any] = {"result": call.result}
    exec(f"def {call.contract.name}({', '.join(call.contract.names)}):\n    return {_fresh(call.result)}", space)
    function: Callable[..., Any] = space[call.contract.name]
    hints = resolve_hints(call.contract.stub)
    function.__annotations__ = {name: _plain_hint(hint, call.contract.name) for name, hint in hints.items()}
    function.__module__ = __name__
    return function


def _fresh(result: Any) -> str:
    """Return an expression that makes new tensor objects of `result`."""
    if isinstance(result, tuple):
        return f"({', '.join(f'result[{at}].detach()' for at in range(len(result)))})"
    return "result" if result is None else "result.detach()"


def _plain_hint(hint: Any, stage_name: str) -> Any:
    """Return a hint that the other checkers can take.

    `type[AD]` has a bound that is named as text, which they do not resolve. beartype takes two `tuple[...]` for one where
    they read alike, as any two pairs of `Ten` do, so that the parts of each get a name of their own.
    """
    if get_origin(hint) is type:
        return type
    if get_origin(hint) is tuple:
        return tuple[tuple(type(f"{stage_name}_{at}", (part,), {}) for at, part in enumerate(get_args(hint)))]  # type: ignore[misc]
    return hint


def hand_written(call: RecordedCall) -> Callable[..., Any]:
    """Return the body under the asserts that a careful author writes by hand: shape, dtype, strides of each tensor."""
    lines = []
    for name, value in zip(call.contract.names, call.args, strict=True):
        if isinstance(value, Tensor):
            lines += [f"assert {name}.shape == {tuple(value.shape)}", f"assert {name}.dtype is {value.dtype}"]
            lines.append(f"assert {name}.is_contiguous()" if value.is_contiguous() else f"assert {name}.stride(-1) == 1")
    space: dict[str, Any] = {"result": call.result, "torch": torch}
    head = f"def {call.contract.name}({', '.join(call.contract.names)}):"
    text = "\n    ".join([head, *lines, f"return {_fresh(call.result)}"])
    exec(text, space)
    function: Callable[..., Any] = space[call.contract.name]
    return function


def watched(call: RecordedCall) -> Callable[..., Any]:
    """Return the body between the `before` and the `after` of an observer, which is given all arguments by name.

    A group is left out: an observer adds no collective.
    """
    contract = call.contract
    watch = observe(contract.stub, mode=Mode.DEVELOPMENT)
    shown = ", ".join(f"{name}={name}" for name in contract.names if name != contract.comm_param)
    names = [record.name for record in contract.returns]
    results = [f"{name}=made[{at}]" if len(names) > 1 else f"{name}=made" for at, name in enumerate(names)]
    lines = [
        f"def {contract.name}({', '.join(contract.names)}):",
        f"seen = before({shown})",
        f"made = {_fresh(call.result)}",
        f"after({', '.join(['seen', *results])})",
        "return made",
    ]
    space: dict[str, Any] = {"result": call.result, "before": watch.before, "after": watch.after}
    exec("\n    ".join(lines), space)
    function: Callable[..., Any] = space[contract.name]
    return function


def checked_by(way: str, call: RecordedCall) -> Callable[..., Any] | None:
    """Return the body under one way of checking; None where its package is not installed."""
    body = empty_body(call)
    if way == "remembered":
        return stage(call.contract.stub, mode=Mode.DEVELOPMENT)(body)
    if way == "watched":
        return watched(call)
    if way == "hand-written asserts":
        return hand_written(call)
    if way == "jaxtyping + beartype":
        return jaxtyping.jaxtyped(typechecker=beartype.beartype)(body)
    try:
        import typeguard  # type: ignore[import-not-found, unused-ignore]
    except ModuleNotFoundError:
        return None
    # From version 3 on it rewrites source, and checks nothing of a function that has none.
    if not hasattr(typeguard, "check_argument_types"):
        return None
    return jaxtyping.jaxtyped(typechecker=typeguard.typechecked)(body)


def measure_checks() -> list[dict[str, object]]:
    """Return a record for each stage and way: the time of a checked call less that of the bare one."""
    records: list[dict[str, object]] = []
    for name, call in sorted(record_calls().items()):
        bare = time_host(_bound(empty_body(call), call.args))
        for way in WAYS:
            records.append({"part": "check", "stage": name, "way": way, **_cost(way, call, bare)})
    return records


def _bound(function: Callable[..., Any], args: tuple[Any, ...]) -> Callable[[], Any]:
    return lambda: function(*args)


def _cost(way: str, call: RecordedCall, bare: Timing) -> dict[str, object]:
    """Return the cost of one way, or why it did not run: packages differ in what they make of these annotations."""
    function = checked_by(way, call)
    if function is None:
        return {"not_run": "not installed (typeguard: a version before 3)"}
    try:
        function(*call.args)
    except Exception as error:  # noqa: BLE001 - whatever a foreign checker raises is the finding
        return {"not_run": f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"}
    slow = "jaxtyping" in way
    timing = time_host(_bound(function, call.args), calls=FEW_CALLS if slow else 1000, repetitions=9)
    less = bare.median_us
    return Timing(timing.median_us - less, timing.p10_us - less, timing.p90_us - less, timing.repetitions).as_json()
