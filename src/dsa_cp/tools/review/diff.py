"""The semantic diff of two sets of contracts: not which text differs, but what a reader of the contract must change.

A parameter is what callers give and an implementation takes, a return value the other way round: looser strides of a
parameter break the kernel that reads them, tighter ones the caller. Any other dtype, dim, order or state breaks both,
since a type checker compares them exactly.
"""

from collections.abc import Iterator

from dsa_contracts.core import marks
from dsa_contracts.dsa import states
from dsa_cp.tools.review.changes import CALLERS, IMPLEMENTATIONS, KERNELS, READERS, Change, breaking_first, replaced
from dsa_cp.tools.review.contract_facts import ContractFacts, ParamFacts, StageFacts, TensorFacts
from dsa_cp.tools.review.invariant_diff import advice_changes, flow_changes, invariant_changes, raises_changes
from dsa_cp.tools.review.vocabulary_diff import code_changes, format_changes, variable_changes

_MAKERS = (IMPLEMENTATIONS, KERNELS)
_BOTH = (CALLERS, *_MAKERS)


def compare(before: ContractFacts, after: ContractFacts) -> list[Change]:
    """Return what changed, breaking changes first, in the order of the contracts."""
    return breaking_first(
        [
            *_all_stage_changes(before.stages, after.stages),
            *variable_changes(before, after),
            *format_changes(before, after),
            *code_changes(before, after),
        ]
    )


def _all_stage_changes(before: dict[str, StageFacts], after: dict[str, StageFacts]) -> Iterator[Change]:
    """Yield the changes of all stages; one that has another name and nothing else is renamed."""
    gone = [name for name in before if name not in after]
    new = [name for name in after if name not in before]
    for name, stage in before.items():
        if name in after:
            yield from stage_changes(stage, after[name])
    for name in gone:
        twin = next((other for other in new if after[other].model_copy(update={"name": name}) == before[name]), None)
        if twin is None:
            yield Change(name, "stage removed", _BOTH)
        else:
            new.remove(twin)
            yield Change(name, f"stage renamed to {twin}", (*_BOTH, READERS))
    for name in new:
        yield Change(name, "stage added", (), (CALLERS, IMPLEMENTATIONS))


def stage_changes(before: StageFacts, after: StageFacts) -> Iterator[Change]:
    """Yield what changed in the contract of one stage."""
    yield from _list_changes(before.name, before.params, after.params, is_return=False)
    yield from _list_changes(before.name, before.returns, after.returns, is_return=True)
    yield from invariant_changes(before, after)
    yield from flow_changes(before, after)
    yield from raises_changes(before, after)
    yield from advice_changes(before, after)


def _list_changes(
    stage: str, before: tuple[ParamFacts, ...], after: tuple[ParamFacts, ...], *, is_return: bool
) -> Iterator[Change]:
    """Yield what changed in a list of parameters or of return values."""
    kind = "return value" if is_return else "parameter"
    renamed = _renamed(before, after)
    names = [renamed.get(param.name, param.name) for param in before]
    by_name = {param.name: param for param in after}
    for param, name in zip(before, names, strict=True):
        if param.name in renamed:
            whom = ((), (CALLERS, READERS)) if is_return else ((CALLERS, IMPLEMENTATIONS), ())
            yield Change(f"{stage}.{param.name}", f"{kind} renamed to {name}", *whom)
        elif name not in by_name:
            yield Change(f"{stage}.{name}", f"{kind} removed", _BOTH)
        else:
            yield from _param_changes(f"{stage}.{name}", param, by_name[name], is_return=is_return)
    for name in by_name:
        if name not in names:
            yield Change(f"{stage}.{name}", f"{kind} added", _BOTH)
    kept = [name for name in names if name in by_name]
    order = [name for name in by_name if name in names]
    if kept != order:
        yield replaced(stage, f"order of {kind}s", ", ".join(kept), ", ".join(order), _BOTH)


def _renamed(before: tuple[ParamFacts, ...], after: tuple[ParamFacts, ...]) -> dict[str, str]:
    """Return the new name of each parameter that has one, and is else the same at the same place."""
    old, new = {param.name for param in before}, {param.name for param in after}
    pairs = zip(before, after, strict=False)
    return {
        was.name: now.name
        for was, now in pairs
        if was.name not in new and now.name not in old and was.model_copy(update={"name": now.name}) == now
    }


def _param_changes(where: str, before: ParamFacts, after: ParamFacts, *, is_return: bool) -> Iterator[Change]:
    """Yield what changed in one parameter or return value of the same name."""
    if before.tensor is None or after.tensor is None:
        was, now = (param.tensor.text if param.tensor else param.type for param in (before, after))
        if was != now:
            yield replaced(where, "type", was, now, _BOTH)
    else:
        yield from _tensor_changes(where, before.tensor, after.tensor, is_return=is_return)
    if before.is_optional != after.is_optional:
        breaks, fits = _by_direction(loosened=after.is_optional, is_return=is_return)
        yield Change(where, "None is legal now" if after.is_optional else "None is not legal any more", breaks, fits)


def _tensor_changes(where: str, before: TensorFacts, after: TensorFacts, *, is_return: bool) -> Iterator[Change]:
    """Yield what changed in what a `Ten` states."""
    for fact, was, now in (
        ("dtype", before.dtype, after.dtype),
        ("rows and order", before.rows, after.rows),
        ("state", before.state, after.state),
    ):
        if was != now:
            yield replaced(where, fact, was, now, _BOTH)
    if len(before.dims) != len(after.dims):
        yield replaced(where, "dims", f"[{' '.join(before.dims)}]", f"[{' '.join(after.dims)}]", _BOTH)
    else:
        for at, (was, now) in enumerate(zip(before.dims, after.dims, strict=True)):
            if was != now:
                yield replaced(where, f"dim {at}", was, now, _BOTH)
    if before.strides != after.strides:
        loosened = _is_looser(before.strides, after.strides)
        breaks, fits = _by_direction(loosened=loosened, is_return=is_return)
        yield replaced(where, "strides", before.strides, after.strides, breaks, fits)


def _by_direction(*, loosened: bool | None, is_return: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return for whom a change breaks and for whom it fits; None means neither looser nor tighter."""
    if loosened is None:
        return _BOTH, ()
    return ((CALLERS,), _MAKERS) if loosened == is_return else (_MAKERS, (CALLERS,))


def _is_looser(before: str, after: str) -> bool | None:
    """Whether strides admit more than before; None where neither admits the other, or one is not known."""
    was, now = _strides_named(before), _strides_named(after)
    if not (isinstance(was, type) and isinstance(now, type)):
        return None
    if issubclass(was, now):
        return True
    return False if issubclass(now, was) else None


def _strides_named(name: str) -> object:
    """Return the class of a stride mark by its written name, None for a type variable."""
    return getattr(states, name, None) or getattr(marks, name, None)
