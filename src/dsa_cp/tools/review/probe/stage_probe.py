"""Every stage on its own: each case of it under fake tensors, and on real tiny ones where it reads data."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import dsa_cp.stages as stages
from dsa_contracts import Comm, Mode, checking_values, stage, unchecked_function
from dsa_contracts.core.contract import StageContract
from dsa_contracts.core.errors import ArgumentError
from dsa_cp.comm import run_ranks
from dsa_cp.tools.review.probe.arguments import Arguments, ProbeComm, arguments, branded
from dsa_cp.tools.review.probe.cases import Case, cases_of
from dsa_cp.tools.review.probe.fake import FITS, ProbeOutcome, fake_batch, faked, outcome_of
from dsa_cp.tools.review.probe.sizes import CP_SIZE
from dsa_cp.tools.stage_table import stage_contracts


@dataclass(frozen=True)
class ProbeResult:
    """What one case of a stage, or of the path, has shown.

    Attributes:
        subject: the stage, or the placement of the path.
        case: the case in words.
        fake: under fake tensors.
        real: on real tensors with values checked; None where no run was needed.
        stood_in: stages that their contracts stood for under fake tensors.
    """

    subject: str
    case: str
    fake: ProbeOutcome
    real: ProbeOutcome | None = None
    stood_in: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether the contract held: under fake tensors, or on real ones where the stage reads data."""
        judged = self.real if self.fake.verdict == "data-dependent" else self.fake
        return judged == FITS and self.real in (None, FITS)

    def as_json(self) -> dict[str, object]:
        """Return the result as one object."""
        found = {"subject": self.subject, "case": self.case, "verdict": self.fake.verdict, "what": self.fake.what}
        real = None if self.real is None else {"verdict": self.real.verdict, "what": self.real.what}
        return {**found, "where": self.fake.where, "real": real, "stood_in": list(self.stood_in), "clean": self.is_clean}


def probe_stages(names: tuple[str, ...] = ()) -> Iterator[ProbeResult]:
    """Yield a result for each case of the named stages, or of all."""
    for contract in stage_contracts():
        if not names or contract.name in names:
            function = checked(contract, getattr(stages, contract.name))
            for case in cases_of(contract):
                yield probe_case(contract, function, case)


def checked(contract: StageContract, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return an implementation under the checks of development mode, whatever mode the process is in."""
    return stage(contract.stub, mode=Mode.DEVELOPMENT)(unchecked_function(function))


def probe_case(contract: StageContract, function: Callable[..., Any], case: Case) -> ProbeResult:
    """Return what one case of a stage shows; rows lie apart, or dense where its contract refuses rows apart."""
    try:
        call = arguments(contract, case, ProbeComm())
    except ArgumentError as error:
        return ProbeResult(contract.name, case.label, ProbeOutcome("failed", error.headline))
    label, found, is_dense = case.label, outcome_of(lambda: _run_fake(contract, function, case, call)), False
    if found.verdict == "refused" and found.what.startswith("StageInputError DSA104"):
        call, is_dense = arguments(contract, case, ProbeComm(), is_dense=True), True
        label, found = f"{label}, dense rows", outcome_of(lambda: _run_fake(contract, function, case, call))
    real = None
    if found.verdict == "data-dependent":
        real = outcome_of(lambda: _run_real(contract, function, case, is_dense=is_dense))
    return ProbeResult(contract.name, label, found, real)


def _run_fake(contract: StageContract, function: Callable[..., Any], case: Case, call: Arguments) -> None:
    """Run a stage on fakes of its arguments."""
    with FakeTensorMode() as mode, torch.no_grad():
        batch = fake_batch(call.batch, mode)
        values = {name: batch if value is call.batch else faked(value, mode) for name, value in call.values.items()}
        function(**branded(contract, case, replace(call, batch=batch, values=values)).values)


def _run_real(contract: StageContract, function: Callable[..., Any], case: Case, *, is_dense: bool) -> None:
    """Run a stage on real tensors, values checked as well: on all ranks where it is a collective, else on one of them."""

    def body(comm: Comm) -> None:
        function(**arguments(contract, case, comm, is_dense=is_dense).values)

    with checking_values(), torch.no_grad():
        if contract.comm_param is None:
            body(ProbeComm())
        else:
            run_ranks(CP_SIZE, body)
