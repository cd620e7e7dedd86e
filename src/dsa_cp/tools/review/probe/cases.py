"""The cases of a stage: one for each choice of what its type variables may stand for, read off its contract."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import TypeVar, get_args, get_origin

from dsa_contracts.core.contract import ParamRecord, StageContract
from dsa_contracts.core.marks import BF16, E4M3, F32, Contiguous, Dim, DType, UnitLast, mark_text
from dsa_contracts.dsa import typevars
from dsa_contracts.dsa.dims import (
    IndexHeadDim,
    IndexRowBytes,
    KvLoraRank,
    Nnz,
    NnzGathered,
    NnzLocal,
    NnzPadded,
    NumSlots,
    QkHeadDim,
)
from dsa_contracts.dsa.row_formats import KV_FORMATS, RowFormat, index_bf16_format, index_fp8_format
from dsa_contracts.dsa.states import Bf16Row, Global, Local, Packed, PackedRowStride, Pool, RankMajor, Raw, Rotated, Sequence
from dsa_cp.layouts import Interleave
from dsa_cp.tools.review.probe.sizes import model_for

AnyFormat = RowFormat[object, DType, DType]


@dataclass(frozen=True)
class Case:
    """One choice.

    Attributes:
        marks: what each type variable stands for, by its letter.
        formats: the row format of each parameter that is one.
        label: the choice in words, empty where a stage leaves none.
    """

    marks: dict[str, object] = field(compare=False)
    formats: dict[str, AnyFormat] = field(compare=False)
    label: str = ""


_ROWS_OF: dict[type[Dim], dict[str, object]] = {
    NnzLocal: {"R": Local[Interleave]},
    NnzPadded: {"R": Local[Interleave]},
    Nnz: {"R": Global[Sequence], "O": Sequence},
    NnzGathered: {"R": Global[RankMajor[Interleave]], "O": RankMajor[Interleave]},
    NumSlots: {"R": Pool},
}
"""What rows and order stand for where a row count is chosen."""

_CHOICES: dict[str, tuple[object, ...]] = {
    "C": (Contiguous, UnitLast, PackedRowStride),
    "P": (Raw, Rotated),
    "QD": (BF16, E4M3),
    "AD": (F32, BF16),
    "S": (Packed[Bf16Row, Rotated],),
}


def cases_of(contract: StageContract) -> Iterator[Case]:
    """Yield the cases of a stage."""
    letters = letters_of(contract)
    groups = [_counts_of(letter) for letter in sorted(letters) if _counts_of(letter)]
    groups += [[{letter: mark} for mark in marks] for letter, marks in _CHOICES.items() if letter in letters]
    params = [param for param in contract.params if get_origin(param.hint) is RowFormat]
    choices = [_formats_of(contract, param) for param in params]
    for formats in product(*choices):
        for parts in product(*groups):
            marks: dict[str, object] = {"L": Interleave}
            for param, row_format in zip(params, formats, strict=True):
                names = [getattr(arg, "__name__", "") for arg in get_args(param.hint)]
                marks |= dict(zip(names, row_format.type_marks, strict=True))
            for part in parts:
                marks |= part
            chosen = [row_format.name for row_format, free in zip(formats, choices, strict=True) if len(free) > 1]
            named = {param.name: row_format for param, row_format in zip(params, formats, strict=True)}
            yield Case(marks, named, ", ".join(chosen + _chosen(letters, marks)))


def letters_of(contract: StageContract) -> set[str]:
    """Return the letters of the type variables that a contract uses."""
    marks: list[object] = []
    for record in (*contract.params, *contract.returns):
        spec = record.spec
        marks += [record.hint] if spec is None else [spec.rows, spec.state, spec.dtype, spec.strides, *spec.dims]
    return set(_letters(marks))


def _letters(marks: Iterable[object]) -> Iterator[str]:
    for mark in marks:
        if isinstance(mark, TypeVar):
            yield mark.__name__
        else:
            yield from _letters(get_args(mark))


def _counts_of(letter: str) -> list[dict[str, object]]:
    """Return the row counts that a letter may stand for, each with its rows and order; none for letters of other things."""
    variable = getattr(typevars, letter, None)
    dims = (
        [dim for dim in variable.__constraints__ if not getattr(dim, "optional", False)]
        if isinstance(variable, TypeVar)
        else []
    )
    return [{letter: dim, **_ROWS_OF.get(dim, {})} for dim in dims]


def _formats_of(contract: StageContract, param: ParamRecord) -> list[AnyFormat]:
    """Return the row formats that a parameter may be, by its annotation; KV or indexer rows by dims and name."""
    names = {dim for record in (*contract.params, *contract.returns) if record.spec for dim in record.spec.dims}
    kv = [make(*_kv_widths(name)) for name, make in KV_FORMATS.items()]
    index: list[AnyFormat] = [index_bf16_format(_index_width("index_bf16")), index_fp8_format(_index_width("index_fp8"))]
    marks = get_args(param.hint)
    if any(isinstance(mark, type) for mark in marks):
        return [row_format for row_format in kv if row_format.mark in marks]
    if IndexHeadDim in names or param.name.startswith("index"):
        return index
    return kv if names & {KvLoraRank, QkHeadDim, IndexRowBytes} else [*kv, *index]


def _kv_widths(name: str) -> tuple[int, int]:
    model = model_for(name)
    return model.kv_lora_rank, model.qk_rope_head_dim


def _index_width(name: str) -> int:
    return model_for(name).index_head_dim


def _chosen(letters: set[str], marks: dict[str, object]) -> list[str]:
    """Return a choice in words."""
    left_out = {"L", "F", "ND", "RD", "FI", "NDI", "RDI", "S"}
    return [f"{letter} {mark_text(marks[letter])}" for letter in sorted(letters - left_out) if letter in marks]
