"""What a layer holds of q and K, and the moves that the stages' contracts allow from there.

The tensors held at the start are the annotations of `LayerInputs`; a move exists where a contract's parameters fit tensors
that are held, and its return values, under what the parameters have bound, are held next.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from itertools import product
from typing import get_args, get_origin

from dsa_contracts import StageContract, TensorSpec
from dsa_contracts.core.marks import Contiguous
from dsa_contracts.core.matching import Bound, clash_of, concrete, unify_parameters
from dsa_contracts.core.tensors import spec_of
from dsa_contracts.dsa.batch_tensors import OPTIONAL_TENSORS
from dsa_contracts.dsa.dims import NnzLocal
from dsa_contracts.dsa.row_formats import KV_FORMATS, RowFormat
from dsa_contracts.dsa.states import PackedRowStride
from dsa_cp.layer.inputs import LayerInputs
from dsa_cp.planner.catalogue import named_source, stage_contracts

STRIDES = (PackedRowStride, Contiguous)
"""What a stage that leaves strides to its consumer may be asked for: views first."""


@dataclass(frozen=True)
class Held:
    """A tensor that a layer holds.

    Attributes:
        name: its name, as a parameter or return value.
        spec: what it is, without type variables.
        is_key: whether it is K or made of K; q otherwise.
        maker: the stage that made it.
    """

    name: str
    spec: TensorSpec
    is_key: bool
    maker: str


Holdings = tuple[Held, ...]


@dataclass(frozen=True)
class Move:
    """One stage applied to what is held.

    Attributes:
        contract: the stage.
        taken: held tensors that flow into it.
        sources: where its other arguments come from, as pairs of parameter and source.
        made: tensors that are held for them.
        strides: the strides that were asked for, None where the stage leaves no choice.
    """

    contract: StageContract
    taken: Holdings
    sources: tuple[tuple[str, str], ...]
    made: Holdings
    strides: object

    def after(self, state: Holdings) -> Holdings:
        """Return what is held after the move."""
        return (*(held for held in state if held not in self.taken), *self.made)

    @property
    def moves_keys(self) -> bool:
        """Whether K takes part."""
        return any(held.is_key for held in self.taken)


@cache
def start(layout: type) -> Holdings:
    """Return what a layer holds of q and K before its first stage: the annotations of `LayerInputs`, in this layout."""
    bound: Bound = {"L": layout, "N": NnzLocal}
    specs = [(item.name, spec_of(item.type)) for item in fields(LayerInputs)]
    return tuple(
        Held(name, concrete(spec, bound), name.startswith("k_"), "inputs")
        for name, spec in specs
        if spec is not None and name in _ATTENTION_INPUTS
    )


_ATTENTION_INPUTS = ("q_nope", "q_rope", "k_nope", "k_rope")
"""The indexer's rows go the same way into a pool of their own (`dsa_cp.layer.indexer`): nothing is to be chosen there."""


def flowing(contract: StageContract) -> tuple[str, ...]:
    """Return the parameters whose rows end up in a result, in the order of the signature."""
    flow = {argument for argument, _ in contract.flow}
    return tuple(name for name in contract.names if name in flow)


def moves(contract: StageContract, state: Holdings, layout: type) -> Iterator[Move]:
    """Yield every way in which a stage applies to what is held."""
    names = flowing(contract)
    for taken in _assignments(contract, names, state, {"L": layout}, ()):
        held, bound = taken
        for sources in _source_choices(contract, layout, bound):
            chosen, known = sources
            for strides in _stride_choices(contract, known):
                final = {**known, **strides}
                if _bind_formats(contract, final):
                    made = _results(contract, dict(zip(names, held, strict=True)), final)
                    yield Move(contract, held, chosen, made, next(iter(strides.values()), None))


def _assignments(
    contract: StageContract, names: tuple[str, ...], state: Holdings, bound: Bound, taken: Holdings
) -> Iterator[tuple[Holdings, Bound]]:
    """Yield held tensors for the flowing parameters, each used once, with what they bind."""
    if not names:
        yield taken, bound
        return
    pattern = contract.param(names[0]).spec
    for held in state:
        trial = dict(bound)
        if held not in taken and pattern is not None and clash_of(pattern, held.spec, trial) is None:
            yield from _assignments(contract, names[1:], state, trial, (*taken, held))


def _source_choices(
    contract: StageContract, layout: type, bound: Bound
) -> Iterator[tuple[tuple[tuple[str, str], ...], Bound]]:
    """Yield sources for the parameters that have some, each fitting what is bound."""
    for choice in product(*(sources for _, sources in contract.sources)):
        trial, chosen = dict(bound), []
        for (name, _), source in zip(contract.sources, choice, strict=True):
            pattern = contract.param(name).spec
            if pattern is None or clash_of(pattern, source_spec(source, layout), trial) is not None:
                break
            chosen.append((name, source))
        else:
            yield tuple(chosen), trial


@cache
def source_spec(source: str, layout: type) -> TensorSpec:
    """Return what `batch.X` or `stage.X` is, in a layout."""
    return concrete(named_source(source), {"L": layout, "N": NnzLocal})


def _stride_choices(contract: StageContract, bound: Bound) -> Iterator[Bound]:
    """Yield bindings for a variable that a parameter like `strides: type[C]` sets; one empty binding where there is none."""
    free = [getattr(arg, "__name__", "") for param in contract.params for arg in _arguments_of(param.hint, type)]
    open_names = [name for name in free if name and name not in bound and name in _result_strides(contract)]
    if not open_names:
        yield {}
        return
    for strides in STRIDES:
        yield dict.fromkeys(open_names, strides)


def _result_strides(contract: StageContract) -> set[str]:
    """Return the names of type variables that stand for strides of return values."""
    return {getattr(record.spec.strides, "__name__", "") for record in contract.returns if record.spec is not None}


def _bind_formats(contract: StageContract, bound: Bound) -> bool:
    """Bind what the row formats of a call stand for; False where no format of KV rows is of that kind."""
    makers = [KV_FORMATS[name] for name in KV_FORMATS.known()]
    for param in contract.params:
        if param.kind is RowFormat and not any(_bind_format(param.hint, make(512, 64), bound) for make in makers):
            return False
    return True


def _arguments_of(hint: object, generic: type) -> tuple[object, ...]:
    """Return the parameters of a hint that is `generic[...]`, none for any other hint."""
    return get_args(hint) if get_origin(hint) is generic else ()


def _bind_format(hint: object, row_format: RowFormat[object, object, object], bound: Bound) -> bool:  # type: ignore[type-var]
    """Bind the parameters of a row format's annotation to one format's marks; False where they do not fit."""
    trial = dict(bound)
    fits = unify_parameters(hint, row_format.type_marks, trial)
    if fits:
        bound.update(trial)
    return fits


def _results(contract: StageContract, taken: dict[str, Held], bound: Bound) -> Holdings:
    """Return what a stage makes of what it takes: its return values, and arguments that it writes in place."""
    made = []
    for name in dict.fromkeys(result for _, result in contract.flow):
        spec = contract.result(name).spec
        if spec is not None:
            from_keys = any(
                taken[argument].is_key for argument, result in contract.flow if result == name and argument in taken
            )
            made.append(Held(name, concrete(spec, bound), from_keys, contract.name))
    return tuple(made)


def optional_metadata(source: str) -> str | None:
    """Return the field of `CpBatch` that a source reads where a batch may lack it, else None."""
    owner, _, name = source.partition(".")
    return name if owner == "batch" and name in OPTIONAL_TENSORS else None


def all_moves(state: Holdings, layout: type) -> Iterator[Move]:
    """Yield every move of every stage from what is held, in the order of the stages' names."""
    for contract in stage_contracts():
        yield from moves(contract, state, layout)
