"""Run a breakage with checks off and with checks on, and report both."""

from dataclasses import asdict, dataclass

from dsa_contracts import ContractError, Layout, checking_values, unchecked
from dsa_cp.demo.breakages import Breakage
from dsa_cp.demo.cells import BACKENDS, RunSpec, make_job, reference_for, verdicts_of
from dsa_cp.demo.compare import OUTPUT_BOUND, Reference, json_number, worst_error
from dsa_cp.demo.run import Job
from dsa_cp.planner import make_plan

BROKEN_FORMAT = "fp8"
"""The row format that breakages are run with: the one whose RoPE is fused."""


@dataclass(frozen=True)
class BreakReport:
    """What a breakage did in one layout; the fields are the keys of `--json`.

    Attributes:
        name: the breakage.
        layout: the layout.
        crash: what it died of with checks off; empty where it ran through.
        differing_slots: pool slots with other bytes than one rank's, with checks off; None where it crashed.
        output_error: largest |out - reference| / largest |reference| with checks off; None where it crashed.
        refused_in: the mode that refused it, `development` or `values`; empty where none did.
        code: the code it was refused with.
        refusal: the headline it was refused with.
    """

    name: str
    layout: str
    crash: str
    differing_slots: int | None
    output_error: float | None
    refused_in: str
    code: str
    refusal: str

    @property
    def is_caught(self) -> bool:
        """Whether the breakage does harm unchecked and is refused when checked."""
        differs = self.output_error is not None and not self.output_error <= OUTPUT_BOUND
        return bool(self.code) and (bool(self.crash) or bool(self.differing_slots) or differs)

    def as_json(self) -> dict[str, object]:
        """Return the report as one object; an error that is not finite is given as text."""
        return {**asdict(self), "output_error": json_number(self.output_error)}


def run_breakages(spec: RunSpec, layouts: tuple[Layout, ...], breakage: Breakage) -> list[BreakReport]:
    """Run a breakage in each layout, all against one run of one rank."""
    reference = reference_for(spec, make_plan(BACKENDS[BROKEN_FORMAT], BROKEN_FORMAT, cp_size=1))
    return [_run_breakage(spec, layout, breakage, reference) for layout in layouts]


def _run_breakage(spec: RunSpec, layout: Layout, breakage: Breakage, reference: Reference) -> BreakReport:
    """Run a breakage in one layout with checks off, then in development mode, then, if that let it pass, with values."""
    plan = make_plan(BACKENDS[BROKEN_FORMAT], BROKEN_FORMAT, layout=layout.name, cp_size=spec.cp_size)
    job = breakage.apply(make_job(spec, layout, plan))
    crash, slots, error = _run_unchecked(spec, job, reference)
    refused_in, code, refusal = _run_checked(spec, job, reference)
    return BreakReport(breakage.name, layout.name, crash, slots, error, refused_in, code, refusal)


def _run_unchecked(spec: RunSpec, job: Job, reference: Reference) -> tuple[str, int | None, float | None]:
    """Return the crash, or the differing slots and the output error."""
    with unchecked():
        try:
            verdicts = verdicts_of(spec, job, reference)
        except ContractError as error:
            cause = error.__cause__ or error
            return f"{type(cause).__name__}: {str(cause).splitlines()[0]}", None, None
    return "", max(verdict.differing_slots for verdict in verdicts), worst_error(verdicts)


def _run_checked(spec: RunSpec, job: Job, reference: Reference) -> tuple[str, str, str]:
    """Return the mode, the code and the headline of the refusal; empty texts where nothing refused."""
    try:
        verdicts_of(spec, job, reference)
    except ContractError as error:
        return "development", *_root(error)
    with checking_values():
        try:
            verdicts_of(spec, job, reference)
        except ContractError as error:
            return "values", *_root(error)
    return "", "", ""


def _root(error: ContractError) -> tuple[str, str]:
    """Return code and headline of the violation behind an error that all ranks raised."""
    cause = error.__cause__
    root = cause if isinstance(cause, ContractError) else error
    return root.code, root.headline
