"""A stage under fake tensors: shapes, dtypes and strides without memory, so that any look at a value shows."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)

from dsa_contracts.core.errors import ContractError
from dsa_contracts.dsa.batch import CpBatch
from dsa_contracts.dsa.layout import Layout

_PACKAGE = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class ProbeOutcome:
    """What came of one run.

    Attributes:
        verdict: `fits`, `data-dependent`, `refused` (a contract is violated) or `failed` (any other error).
        what: the operation, or the error.
        where: file and line in the package, of the operation or of the failure.
    """

    verdict: str
    what: str = ""
    where: str = ""


FITS = ProbeOutcome("fits")


def outcome_of(call: Callable[[], object]) -> ProbeOutcome:
    """Run a call and return what came of it."""
    try:
        call()
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        return ProbeOutcome("data-dependent", str(error.func), _where(error))
    except ContractError as error:
        return ProbeOutcome("refused", str(error))
    except Exception as error:  # noqa: BLE001 - a probe reports whatever a stage raises
        return ProbeOutcome("failed", f"{type(error).__name__}: {str(error).partition(chr(10))[0]}", _where(error))
    return FITS


def _where(error: BaseException) -> str:
    """Return the innermost line of the package that an error went through, the probe's own lines left out."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_ours(frame.filename)]
    if not frames:
        return ""
    last = frames[-1]
    line = (last.line or "").partition("  #")[0]
    return f"{Path(last.filename).resolve().relative_to(_PACKAGE.parent).as_posix()}:{last.lineno}: {line}"


def _is_ours(name: str) -> bool:
    path = Path(name).resolve()
    return path.is_relative_to(_PACKAGE) and not path.is_relative_to(_PACKAGE / "tools" / "review")


def faked(value: object, mode: FakeTensorMode) -> object:
    """Return a tensor as a fake of the same strides; anything else as it is."""
    return mode.from_tensor(value) if isinstance(value, Tensor) else value


def fake_batch(batch: CpBatch[Layout], mode: FakeTensorMode) -> CpBatch[Layout]:
    """Return a batch whose index tensors are fakes."""
    tensors = {item.name: getattr(batch, item.name) for item in fields(batch)}
    fakes: dict[str, Any] = {name: mode.from_tensor(value) for name, value in tensors.items() if isinstance(value, Tensor)}
    return replace(batch, **fakes)
