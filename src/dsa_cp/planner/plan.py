"""`Plan`: a decision as data, with its reasons; JSON both ways. A plan that does not fit cannot be constructed."""

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationInfo, model_validator

from dsa_contracts.dsa.codes import PlanError
from dsa_cp.planner.backends import CAPABILITIES
from dsa_cp.planner.choice import Candidate, cost_of, effects, problem_of
from dsa_cp.planner.decisions import Decision, MetadataNeed, decisions, metadata_needs
from dsa_cp.planner.options import PlanOptions
from dsa_cp.planner.refusals import PlanQuestion, ask, refuse_what_cannot_work
from dsa_cp.planner.replay import replay
from dsa_cp.planner.search import Path, legal_paths

PLAN_VERSION: Literal[1] = 1
"""Of the JSON form; a reader of this version reads no newer one."""


class Data(BaseModel):
    """Base of the plan's parts: frozen, no unknown keys, no conversions."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Step(Data):
    """K after one stage, or as it is given: a line of the plan's table."""

    stage: str
    effect: Literal["given", "wire", "view", "all rows", "own rows", "queries"]
    rows: str
    order: str
    rope: str
    dtype: str
    strides: str
    bytes_per_token: int


class PlanCost(Data):
    """What the plan costs a layer; see `Cost`."""

    wire_bytes: int
    all_row_passes: int
    own_row_passes: int


class Rejected(Data):
    """A placement that lost, and why."""

    placement: str
    reason: str


class Plan(Data):
    """Where K is rotated, quantised and gathered, for one set of options.

    Attributes:
        kind: marks the JSON object as a plan.
        version: of the JSON form.
        options: what it was made for.
        stages: the stages in order, those of K first.
        placement: written name of the placement; `dsa_cp.layer.placements.PLACEMENTS` has the function.
        steps: K as it is given, then after each stage.
        cost: what it costs a layer.
        decisions: what was decided, and why.
        metadata: what the engine must build.
        rejected: the other placements, and why they lost.
    """

    kind: Literal["dsa-cp plan"] = "dsa-cp plan"
    version: Literal[1] = PLAN_VERSION
    options: PlanOptions
    stages: tuple[str, ...]
    placement: str
    steps: tuple[Step, ...]
    cost: PlanCost
    decisions: tuple[Decision, ...]
    metadata: tuple[MetadataNeed, ...]
    rejected: tuple[Rejected, ...]

    @model_validator(mode="after")
    def _fits(self, info: ValidationInfo) -> "Plan":
        """Check the plan against the stages' contracts and the backends' capabilities.

        Raises:
            PlanError: DSA401, the options cannot work; DSA402, the stages do not fit, or a field says what they do not.
        """
        known = (info.context or {}).get("capabilities", CAPABILITIES)
        question = ask(self.options, known)
        facts = plan_facts(question, self.stages)
        for name, want in facts.items():
            _same(name, getattr(self, name), want)
        return self

    @property
    def name(self) -> str:
        """The written name that batches carry, and that ranks compare."""
        return f"{self.options.backend}/{self.options.kv_format}/{self.placement}"

    @property
    def row_format(self) -> str:
        """The row format of the pool."""
        return self.options.kv_format

    @property
    def gather_after(self) -> str:
        """The stage behind which K is gathered; `none` where one rank has all rows."""
        return self.decided("gather").value.removeprefix("after ")

    @property
    def reason(self) -> str:
        """Why K is gathered there, in a line."""
        return f"{self.decided('rotation').reason}; {self.decided('gather').reason}"

    def decided(self, what: str) -> Decision:
        """Return the decision about something."""
        return next(decision for decision in self.decisions if decision.what == what)

    def require_metadata(self, present: Iterable[str]) -> None:
        """Raise PlanError DSA304 where the engine lacks a field that the plan needs."""
        check_metadata(self.options, self.metadata, present)


def plan_facts(question: PlanQuestion, stages: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields of a plan that its options and stages determine, decisions by value.

    Raises:
        PlanError: DSA401, DSA402, DSA304.
    """
    refuse_what_cannot_work(question)
    path = replay(stages, type(question.options.made_layout))
    problem = problem_of(path, question)
    if problem:
        facts = [("because", problem), ("try", "`dsa-cp plan --explain` shows the placements that fit")]
        raise PlanError(f"{placement_of(path, question)} does not fit {question.running.name}", code="DSA402", facts=facts)
    chosen = Candidate(path, cost_of(path, question.options), "")
    needs = metadata_needs(question, chosen)
    if question.options.metadata is not None:
        check_metadata(question.options, needs, question.options.metadata)
    return {
        "stages": path.stages,
        "placement": placement_of(path, question),
        "steps": steps_of(path, question.options.ranks),
        "cost": PlanCost(**vars(chosen.cost)),
        "decisions": decisions(question, chosen),
        "metadata": needs,
    }


def _same(name: str, got: Any, want: Any) -> None:
    """Raise PlanError DSA402 where a plan says otherwise than its stages; reasons may be worded in other ways."""
    said, made = _facts_of(got), _facts_of(want)
    if said != made:
        facts = [
            ("expected", "; ".join(fact for fact in made if fact not in said) or "no more than that"),
            ("got", "; ".join(fact for fact in said if fact not in made) or "less than that"),
            ("try", f"leave {name} out: it follows from options and stages"),
        ]
        raise PlanError(f"{name}: the plan says otherwise than its stages make it", code="DSA402", facts=facts)


def _facts_of(value: Any) -> list[str]:
    """Return a field's facts alone, one text each; a step carries its place."""
    if isinstance(value, tuple):
        found = [fact for item in value for fact in _facts_of(item)]
        return [f"{at + 1} {fact}" for at, fact in enumerate(found)] if value and isinstance(value[0], Step) else found
    if isinstance(value, Decision):
        return [f"{value.what} {value.value}"]
    if isinstance(value, MetadataNeed):
        return [value.field]
    if isinstance(value, BaseModel):
        return [", ".join(f"{key} {item}" for key, item in value)]
    return [str(value)]


def placement_of(path: Path, question: PlanQuestion) -> str:
    """Return the name of a path: that of a legal placement, or its stages where it is none of those."""
    legal = {other.stages for other in legal_paths(type(question.options.made_layout))}
    return path.name if path.stages in legal else "+".join(path.stages)


def steps_of(path: Path, ranks: int) -> tuple[Step, ...]:
    """Return K as it is given, then after each stage."""
    parts = zip(("inputs", *path.stages), ("given", *effects(path, ranks)), path.keys, strict=True)
    return tuple(Step(stage=stage, effect=effect, **vars(keys)) for stage, effect, keys in parts)  # type: ignore[arg-type]


def check_metadata(options: PlanOptions, needs: tuple[MetadataNeed, ...], present: Iterable[str]) -> None:
    """Raise PlanError DSA304 for the first field that is needed and not there."""
    given = set(present)
    for need in needs:
        if need.field not in given:
            raise PlanError(
                f"{options.backend} needs {need.field} in {options.phase} with {options.kv_format} rows, the engine has none",
                code="DSA304",
                facts=[
                    ("expected", need.purpose),
                    ("source", need.source),
                    ("try", f"build {need.field} in {options.phase}"),
                ],
            )
