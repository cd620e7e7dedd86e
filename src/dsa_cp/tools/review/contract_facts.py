"""Contract records as plain data that can be compared, written and read: what the lock holds and the catalogue shows."""

from typing import TypeVar, get_origin

from pydantic import BaseModel, ConfigDict

from dsa_contracts.core.contract import ParamRecord, StageContract
from dsa_contracts.core.errors import CODES
from dsa_contracts.core.invariant import Invariant
from dsa_contracts.core.marks import Dim, DType, dim_name, dim_text, mark_text
from dsa_contracts.core.matching import bound_of, dtype_mark_text
from dsa_contracts.core.tensors import TensorSpec
from dsa_contracts.dsa import row_formats as formats
from dsa_contracts.dsa import typevars
from dsa_contracts.dsa.row_formats import RowFormat
from dsa_cp.tools.review.docstrings import read_docstring
from dsa_cp.tools.stage_table import stage_contracts


class Facts(BaseModel):
    """Base of all facts: frozen, and no field is unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class TensorFacts(Facts):
    """What a `Ten` states, each part as it is written."""

    rows: str
    state: str
    dtype: str
    strides: str
    dims: tuple[str, ...]

    @property
    def text(self) -> str:
        """Dtype and dims in one word, as in `bf16[N kv_lora_rank]`."""
        return f"{self.dtype}[{' '.join(self.dims)}]"


class ParamFacts(Facts):
    """One parameter or return value; `type` is the annotation of what is no tensor, else empty."""

    name: str
    tensor: TensorFacts | None
    type: str
    is_optional: bool


class InvariantFacts(Facts):
    """One invariant; see `dsa_contracts.core.invariant.Invariant`."""

    name: str
    code: str
    subject: str
    statement: str
    reads_data: bool


class StageFacts(Facts):
    """One stage's contract; see `dsa_contracts.core.contract.StageContract`.

    `raises` lists the codes of each error class that the stub's docstring names.
    """

    name: str
    is_collective: bool
    params: tuple[ParamFacts, ...]
    returns: tuple[ParamFacts, ...]
    requires: tuple[InvariantFacts, ...]
    ensures: tuple[InvariantFacts, ...]
    raises: dict[str, tuple[str, ...]]
    advice: dict[str, str]
    flow: tuple[tuple[str, str], ...]
    sources: dict[str, tuple[str, ...]]


class PartFacts(Facts):
    """One part of a packed row."""

    name: str
    dtype: str
    count: int
    offset: int


class ContractFacts(Facts):
    """All that callers, implementations, kernels and readers of errors may rely on.

    Attributes:
        stages: by name.
        type_variables: what each letter may stand for.
        row_formats: parts of each packed row at its default dims.
        codes: text of each code.
    """

    stages: dict[str, StageFacts]
    type_variables: dict[str, str]
    row_formats: dict[str, tuple[PartFacts, ...]]
    codes: dict[str, str]


ROW_FORMATS: tuple[RowFormat[object, DType, DType], ...] = (
    formats.bf16_format(),
    formats.fp8_format(),
    formats.fp8_656_format(),
    formats.index_bf16_format(),
    formats.index_fp8_format(),
)
"""The row formats at their default dims."""


def contract_facts() -> ContractFacts:
    """Return the facts of the contracts of this checkout."""
    return ContractFacts(
        stages={contract.name: stage_facts(contract) for contract in stage_contracts()},
        type_variables={name: variable_text(getattr(typevars, name)) for name in sorted(typevars.__all__)},
        row_formats={row_format.name: format_facts(row_format) for row_format in ROW_FORMATS},
        codes={code: text for code, text in CODES.items() if code.startswith("DSA")},  # and none of an installed vocabulary
    )


def stage_facts(contract: StageContract) -> StageFacts:
    """Return the facts of one contract record."""
    return StageFacts(
        name=contract.name,
        is_collective=contract.comm_param is not None,
        params=tuple(_param(record) for record in contract.params),
        returns=tuple(_param(record) for record in contract.returns),
        requires=tuple(_invariant(invariant) for invariant in contract.requires),
        ensures=tuple(_invariant(invariant) for invariant in contract.ensures),
        raises=read_docstring(contract.stub).raises,
        advice=dict(contract.advice),
        flow=contract.flow,
        sources=dict(contract.sources),
    )


def _param(record: ParamRecord) -> ParamFacts:
    tensor = None if record.spec is None else _tensor(record.spec)
    return ParamFacts(
        name=record.name,
        tensor=tensor,
        type="" if tensor else mark_text(record.hint),
        is_optional=record.is_optional,
    )


def _tensor(spec: TensorSpec) -> TensorFacts:
    return TensorFacts(
        rows=mark_text(spec.rows),
        state=mark_text(spec.state),
        dtype=dtype_mark_text(spec.dtype),
        strides=mark_text(spec.strides),
        dims=tuple(dim_text(dim) for dim in spec.dims),
    )


def _invariant(invariant: Invariant) -> InvariantFacts:
    return InvariantFacts(
        name=invariant.name,
        code=invariant.code,
        subject=invariant.subject,
        statement=invariant.statement,
        reads_data=invariant.reads_data,
    )


def format_facts(row_format: RowFormat[object, DType, DType]) -> tuple[PartFacts, ...]:
    """Return the parts of a row format."""
    return tuple(
        PartFacts(name=part.name, dtype=dtype_mark_text(part.dtype), count=part.count, offset=part.offset)
        for part in row_format.parts
    )


def variable_text(variable: object) -> str:
    """Return what a type variable may stand for: `nnz_local or nnz_padded`, or `any Rows`."""
    if not isinstance(variable, TypeVar):
        return "any trailing dims"
    if variable.__constraints__:
        return " or ".join(dim_name(option) if _is_dim(option) else mark_text(option) for option in variable.__constraints__)
    return f"any {mark_text(bound_of(variable))}"


def _is_dim(mark: object) -> bool:
    return get_origin(mark) is None and isinstance(mark, type) and issubclass(mark, Dim)
