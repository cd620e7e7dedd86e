"""A layer's stage calls on tensors whose numbers of rows are z3 terms: what each call asks for, and what it returns.

It is what development mode does with tensors: dims are bound for the batch and the call, marks are unified.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import dsa_contracts.stages as stubs
from dsa_contracts import CpBatch
from dsa_contracts.core.bound_dims import BoundDims
from dsa_contracts.core.contract import ParamRecord, StageContract, contract_of, make_param
from dsa_contracts.core.marks import dim_name, dim_text, mark_text
from dsa_contracts.core.matching import substitute, unify
from dsa_contracts.core.tensors import TensorSpec
from dsa_contracts.dsa.dims import IndexRowBytes, RowBytes
from dsa_contracts.dsa.row_formats import (
    RowFormat,
    bf16_format,
    fp8_656_format,
    fp8_format,
    index_bf16_format,
    index_fp8_format,
)
from dsa_contracts.dsa.states import Packed
from dsa_cp.layer.cache import LayerCache
from dsa_cp.layer.inputs import LayerInputs
from dsa_cp.layer.local_batch import LocalBatch
from dsa_cp.layer.models import MODELS
from dsa_cp.layer.setting import Setting
from dsa_cp.tools.prove.cut import Cut
from dsa_cp.tools.prove.goals import Fact
from dsa_cp.tools.prove.stage_steps import StageCall
from dsa_cp.tools.prove.terms import Ask, Term

MODEL = MODELS["deepseek-v3.2"]
"""Widths of rows are this model's; numbers of rows are any."""

_OWNERS: dict[str, type] = {
    "inputs": LayerInputs,
    "local": LocalBatch,
    "batch": CpBatch,
    "setting": Setting,
    "cache": LayerCache,
}


@dataclass(frozen=True)
class Size:
    """A dim: its written name and its size."""

    name: str
    value: Term


@dataclass(frozen=True)
class Value:
    """A tensor as a contract states it, with sizes."""

    rows: object
    state: object
    dtype: object
    strides: object
    sizes: tuple[Size, ...]


def _formats() -> dict[object, RowFormat[Any, Any, Any]]:
    """Return all row formats of the model by mark."""
    kv = (make(MODEL.kv_lora_rank, MODEL.qk_rope_head_dim) for make in (bf16_format, fp8_format, fp8_656_format))
    index = (make(MODEL.index_head_dim) for make in (index_bf16_format, index_fp8_format))
    return {row_format.mark: row_format for row_format in (*kv, *index)}


class _Binder:
    """Stands for a batch where a model binds its dims."""

    def __init__(self) -> None:
        self.dims = BoundDims()


def _model_sizes() -> dict[str, Term]:
    """Return the dims that the model binds, and the width of its cos/sin table, by name."""
    binder = _Binder()
    MODEL.bind(binder)  # type: ignore[arg-type]
    sizes = {name: bound.value for name, bound in binder.dims.dims.items()}
    return {**sizes, "cos_sin_width": MODEL.qk_rope_head_dim}


def _stated(source: str) -> TensorSpec:
    """Return the spec of a source that no stage makes."""
    owner, _, name = source.partition(".")
    spec = make_param(name, get_type_hints(_OWNERS[owner])[name]).spec
    if spec is None:
        raise KeyError(f"{source} is no tensor")
    return spec


@dataclass
class Walk:
    """Goes through the calls of a layer and keeps what each has returned.

    Attributes:
        cut: the batch.
        ask: gives sizes that nothing in the batch decides.
        kv_format: name of the format of the pool's rows.
        own_rows: name of the dim that this rank's rows have, `nnz_local` or `nnz_padded`.
        nnz_local: real rows of this rank.
    """

    cut: Cut
    ask: Ask
    kv_format: str
    own_rows: str
    nnz_local: Term
    _made: dict[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Bind the dims that a batch and a model bind, and choose the formats."""
        cut, self._formats = self.cut, _formats()
        by_name = {row_format.name: row_format for row_format in self._formats.values()}
        kv = by_name[self.kv_format]
        self._cached = {"F": kv.mark, "FI": by_name["index_fp8" if kv.is_quantized else "index_bf16"].mark}
        self._sizes = {"nnz": cut.nnz, "nnz_local": self.nnz_local, "nnz_padded": cut.nnz_padded}
        self._sizes |= {"nnz_gathered": cut.cp_size * cut.nnz_padded, "num_requests": cut.num_requests}
        self._sizes |= {name: self.ask(name, 1) for name in ("num_pages", "page_size", "max_pages", "max_position")}
        self._sizes |= _model_sizes()

    def _value(self, source: str) -> Value:
        """Return what a source gives."""
        if source in self._made:
            return self._made[source]
        marks: dict[str, object] = {"L": type(self.cut.layout), **self._cached}
        return self._typed(_stated(source), marks, {"N": Size(self.own_rows, self._sizes[self.own_rows])})

    def _typed(self, spec: TensorSpec, marks: dict[str, object], sizes: dict[str, Size]) -> Value:
        """Return the value that a spec states under what its type variables stand for."""
        rows, state, dtype, strides = (substitute(mark, marks) for mark in (spec.rows, spec.state, spec.dtype, spec.strides))
        found: list[Size] = []
        for text, dim in ((dim_text(dim), dim) for dim in spec.dims):
            if text.startswith("*"):
                found += [size for name, size in sizes.items() if name.startswith(text)]
            else:
                found.append(self._stated_size(dim, state, sizes) or Size(text, self.ask(text, 0)))
        return Value(rows, state, dtype, strides, tuple(found))

    def _stated_size(self, dim: object, state: object, sizes: dict[str, Size]) -> Size | None:
        """Return what a dim is by row format, by the call or by the batch, None where nothing says it."""
        text = dim_text(dim)
        if dim in (RowBytes, IndexRowBytes) and get_origin(state) is Packed:
            return Size(text, self._formats[get_args(state)[0]].row_bytes)
        return sizes.get(text) or (Size(text, self._sizes[text]) if text in self._sizes else None)

    def call(self, step: StageCall) -> tuple[list[Fact], list[Fact]]:
        """Return the facts that a call asks for, of sizes and of marks; what it returns is kept."""
        contract: StageContract = contract_of(getattr(stubs, step.stage))
        sources, sizes = dict(step.sources), dict[str, Size]()
        marks: dict[str, object] = {"L": type(self.cut.layout)}
        of_sizes, of_marks = list[Fact](), list(self._given_marks(contract, step, marks))
        for param in contract.params:
            if param.spec is not None and param.name in sources:
                value = self._value(sources[param.name])
                of_marks += _mark_facts(param, param.spec, value, marks)
                of_marks += _kind_facts(param, param.spec, value)
                of_sizes += self._size_facts(param, param.spec, value, substitute(param.spec.state, marks), sizes)
        for record in contract.returns:
            if record.spec is not None:
                self._made[f"{step.stage}.{record.name}"] = self._typed(record.spec, marks, sizes)
        return of_sizes, of_marks

    def _given_marks(self, contract: StageContract, step: StageCall, marks: dict[str, object]) -> Iterator[Fact]:
        """Bind type variables through row formats, a class of strides and the dtype of the output."""
        for name, mark in step.marks:
            param = contract.param(name)
            given = self._formats[mark].type_marks if mark in self._formats else (mark,)
            for pattern, given_mark in zip(get_args(param.hint), given, strict=False):
                if not unify(pattern, given_mark, marks):
                    yield Fact(f"{param.name}: what it is for", mark_text(given_mark), "=", mark_text(pattern))

    def _size_facts(
        self, param: ParamRecord, spec: TensorSpec, value: Value, state: object, sizes: dict[str, Size]
    ) -> Iterator[Fact]:
        """Yield that each dim has the size that it has in the batch, in its row format, or in the rest of the call."""
        for at, dim in enumerate(spec.dims):
            text = dim_text(dim)
            if text.startswith("*"):
                sizes.update({f"{text}{place}": size for place, size in enumerate(value.sizes[at:])})
                return
            got = value.sizes[at]
            want = self._stated_size(dim, state, sizes)
            if want is None:
                sizes[text] = want = got
            what = f"dim {at} of {param.name}, {got.name} where it was made, {text} in the stage"
            yield Fact(what, got.value, "=", want.value)


def _shown(pattern: object, marks: dict[str, object]) -> str:
    """Return a pattern as written, with what is known of its variables put in."""
    variables = (pattern,) if isinstance(pattern, TypeVar) else getattr(pattern, "__parameters__", ())
    known = {variable.__name__: marks.get(variable.__name__, variable) for variable in variables}
    return mark_text(substitute(pattern, known))


def _mark_facts(param: ParamRecord, spec: TensorSpec, value: Value, marks: dict[str, object]) -> Iterator[Fact]:
    """Yield a false fact for each mark of an argument that is not what the stage takes; the others bind variables."""
    pairs = (("rows", spec.rows, value.rows), ("state", spec.state, value.state), ("dtype", spec.dtype, value.dtype))
    for what, pattern, got in pairs:
        shown = _shown(pattern, marks)
        if not unify(pattern, got, marks):
            yield Fact(f"{param.name}: {what}", mark_text(got), "=", shown)
    want, strides = spec.strides, value.strides
    if isinstance(want, type) and not (isinstance(strides, type) and issubclass(strides, want)):
        yield Fact(f"{param.name}: strides", mark_text(strides), "=", mark_text(want))
    if len(value.sizes) < len([dim for dim in spec.dims if not dim_text(dim).startswith("*")]):
        yield Fact(f"{param.name}: dims", len(value.sizes), "=", len(spec.dims))


def _kind_facts(param: ParamRecord, spec: TensorSpec, value: Value) -> Iterator[Fact]:
    """Yield a false fact for each dim that is none of those that the stage's type variable stands for."""
    for at, (dim, got) in enumerate(zip(spec.dims, value.sizes, strict=False)):
        legal = [dim_name(each) for each in dim.__constraints__] if isinstance(dim, TypeVar) else []
        if legal and got.name not in legal:
            yield Fact(f"{param.name}: dim {at}", got.name, "=", " or ".join(legal))
