"""A call that comes again, layer after layer, recognised without hashing what it is made of.

The memory of a stage knows every call that passed, by a signature that takes microseconds to make. Most calls are those of
the layer before with other tensors, so that a remembered call also keeps what it looked like: its values, a guard over its
tensors, the keys of their brands. Comparing with these decides the same thing as the signature; where it says no, the
signature is made.

Both comparisons are written out as source, one line an argument, and compiled: a loop over arguments costs more than what it
compares. The source depends on which arguments are tensors, have brands and so on, and not on what they are.
"""

from collections.abc import Callable
from enum import Enum
from typing import cast

from torch import Tensor

from dsa_contracts.core.brands import ATTRIBUTE, Kind, brand_of
from dsa_contracts.core.comm import Group
from dsa_contracts.core.parts import ABSENT, Marked, Parts
from dsa_contracts.core.runtime.guards import same_tensors
from dsa_contracts.core.runtime.signatures import Places
from dsa_contracts.core.runtime.writing import written
from dsa_contracts.core.scope import Scope
from dsa_contracts.core.views import adopt, facts_of, needs_storage, note

Args = tuple[object, ...]
IsAgain = Callable[[Args, Scope], bool]
"""Whether a call of a scope looks like the one it was made for. False may also mean: not known."""
Leave = Callable[[object, Args, Scope], bool]
"""Whether what a call returned looks like what it was made for and is none of its arguments; if so it has been branded."""


def never(*_anything: object) -> bool:
    """Recognise nothing."""
    return False


def look_of_call(args: Args, scope: Scope, places: Places, *, is_watched: bool) -> IsAgain:
    """Return what recognises calls that look like this one; `never` where its tensors are not plain ones."""
    lines = [f"{_unpacked(places)} = args", "layer, token = scope.layer, scope.token"]
    known: dict[str, object] = {"signature": scope.signature, "adopt": adopt}
    tests = [f"layer {'is' if scope.layer is None else 'is not'} None and scope.signature is signature"]
    tensors: dict[str, Tensor] = {}
    for at in places.tensors:
        tensors |= _tensors_at(f"a{at}", args[at], lines, known)
    same = same_tensors(tuple(tensors.values()))
    if same is None:
        return never
    known["same"] = same
    for at in sorted({*places.tensors, *places.others}):
        if at in places.tensors and isinstance(args[at], Tensor | Parts):
            continue
        if not _is_plain(args[at]):
            return never
        known |= {f"value{at}": args[at], f"type{at}": type(args[at])}
        tests.append(f"(a{at} is value{at} or (type(a{at}) is type{at} and a{at} == value{at}))")
    tests.append(f"same({', '.join(tensors)})")
    lines += _brand_lines(tensors, known, tests, is_watched=is_watched)
    for at in places.offsets:
        one = args[at]
        if isinstance(one, Tensor):
            known[f"offset{at}"] = one.storage_offset()
            tests.append(f"a{at}.storage_offset() == offset{at}")
    if places.comm is not None:
        group = args[places.comm]
        known |= {"Group": type(group), "size": getattr(group, "size", None), "rank": getattr(group, "rank", None)}
        tests.append(f"type(a{places.comm}) is Group")
        if isinstance(group, Group):
            tests.append(f"a{places.comm}.size == size and a{places.comm}.rank == rank")
    return cast(IsAgain, written("is_again(args, scope)", [*lines, "return " + " and ".join(tests)], known))


def _tensors_at(name: str, value: object, lines: list[str], known: dict[str, object]) -> dict[str, Tensor]:
    """Return the tensors that a value is or holds, by the names that they have behind the lines added here."""
    if isinstance(value, Tensor):
        return {name: value}
    if not isinstance(value, Parts) or not value.tensors:
        return {}
    tensors = {f"{name}_{at}": tensor for at, tensor in enumerate(value.tensors)}
    known[f"Parts_{name}"] = type(value)
    lines.append(f"if type({name}) is not Parts_{name} or len({name}.tensors) != {len(tensors)}: return False")
    lines.append(f"{', '.join(tensors)}, = {name}.tensors")
    return tensors


def _brand_lines(tensors: dict[str, Tensor], known: dict[str, object], tests: list[str], *, is_watched: bool) -> list[str]:
    """Return the lines that take the brands of tensors apart, and add to `tests` what compares them with those of these.

    A tensor that has no brand, where the one before had, may be a view that takes it over.
    """
    taken, unbranded = [], []
    for name, tensor in tensors.items():
        brand = brand_of(tensor)
        if brand is None:
            unbranded.append(f"{name}.is_nested")
            tests.append(f"getattr({name}, {ATTRIBUTE!r}, None) is None")
            # It may be a view of branded memory now. Of results of stages only those that torch links are: see `views`.
            # Whether a tensor is of inference mode, where it links none, the comparison of tensors tells.
            cannot = "" if is_watched or tensor.is_inference() else f"{name}._base is None or "
            tests.append(f"({cannot}not adopt({name}, scope))")
            continue
        known[f"key_{name}"] = brand.key
        taken.append((name, f"_, k_{name}, s_{name}, l_{name} = {name}.{ATTRIBUTE}"))
        tests.append(f"k_{name} is key_{name} and (s_{name} is token or s_{name} is None)")
        tests.append(f"(l_{name} is layer or l_{name} is None or layer is None or l_{name} == layer)")
    if not taken and not unbranded:
        return []
    # torch's guards end the process on a nested tensor; none has a brand, since `declare` refuses it and no contract has one.
    nested = [f"if {' or '.join(unbranded)}: return False"] if unbranded else []
    adopted = " and ".join(f"adopt({name}, scope)" for name, _ in taken) or "False"
    return [
        "try:",
        *(f"    {line}" for line in (*(line for _, line in taken), *nested)),
        "except AttributeError:",
        "    try:",
        f"        if not ({adopted}): return False",
        *(f"        {line}" for line in (*(line for _, line in taken), *nested)),
        "    except (AttributeError, TypeError, ValueError):",
        "        return False",
        "except (TypeError, ValueError):",
        "    return False",
    ]


def look_of_results(result: object, kinds: tuple[tuple[int, Kind], ...], places: Places, *, is_watched: bool) -> Leave:
    """Return what recognises results that look like these and brands them; `never` where they are not plain tensors.

    Args:
        result: what the call returned.
        kinds: which of its results is of which kind.
        places: where what stands among its arguments.
        is_watched: whether the call is made elsewhere; then a result may be the very object that an argument is.
    """
    if result is None:
        return _is_nothing
    results = result if type(result) is tuple else (result,)
    lines = [f"if type(result) is not tuple or len(result) != {len(results)}: return False"]
    lines.append(f"{', '.join(f'r{at}' for at in range(len(results)))}, = result")
    if type(result) is not tuple:
        lines = ["r0 = result"]
    known: dict[str, object] = {"note": note, "ABSENT": ABSENT}
    tensors: dict[str, Tensor] = {}
    kind_of = dict(kinds)
    kinds_by_name: dict[str, Kind] = {}
    for at, one in enumerate(results):
        if one is ABSENT:
            lines.append(f"if r{at} is not ABSENT: return False")
            continue
        found = _tensors_at(f"r{at}", one, lines, known)
        if not found:
            return never
        tensors |= found
        if at in kind_of:
            own = one.kinds(kind_of[at]) if isinstance(one, Parts) else (kind_of[at],)
            kinds_by_name |= dict(zip(found, own, strict=True))
    same = same_tensors(tuple(tensors.values())) if tensors else None
    if same is None:
        return never
    known["same"] = same
    nested = " or ".join(f"{name}.is_nested" for name in tensors)
    lines += ["try:", f"    if {nested}: return False", "except AttributeError:", "    return False"]
    lines += [f"if not same({', '.join(tensors)}): return False", "token, layer = scope.token, scope.layer"]
    own_objects = [f"{name} is a{place}" for name in tensors for place in (*places.tensors, *places.others)]
    if own_objects and not is_watched:
        lines += [f"{_unpacked(places)} = args", f"if {' or '.join(own_objects)}: return False"]
    lines += _branding_lines(tensors, kinds_by_name, known, is_watched=is_watched)
    return cast(Leave, written("leave(result, args, scope)", [*lines, "return True"], known))


def _branding_lines(
    tensors: dict[str, Tensor], kinds: dict[str, Kind], known: dict[str, object], *, is_watched: bool
) -> list[str]:
    """Return the lines that brand results, as `views.brand_result` does, or `set_brand` for a watched call.

    They are written out, since the calls cost more.
    """
    lines = []
    for name, kind in kinds.items():
        known |= {f"kind_{name}": kind, f"key_{name}": kind.key}
        known[f"facts_{name}"] = facts_of(tensors[name])
        lines.append(f"{name}.{ATTRIBUTE} = brand = (kind_{name}, key_{name}, token, layer)")
        # What a stage returned is a view, or was made in inference mode, now as it was then; if not, views of it are unknown.
        if is_watched or needs_storage(tensors[name]):
            lines.append(f"note({name}, facts_{name}, brand)")
    return lines


def _is_plain(value: object) -> bool:
    """Whether a value may be kept and compared by `==`: nothing that holds tensors, no container of parts with types."""
    return value is None or isinstance(value, int | float | str | Enum | type | Marked)


def _is_nothing(result: object, *_others: object) -> bool:
    return result is None


def _unpacked(places: Places) -> str:
    """Return names for all arguments."""
    return "".join(f"a{at}, " for at in range(places.count)).rstrip()
