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
from functools import cache
from types import CodeType
from typing import Any, cast

from torch import Tensor

from dsa_contracts.core.brands import ATTRIBUTE, Kind, brand_of
from dsa_contracts.core.parts import Marked
from dsa_contracts.core.runtime.guards import same_tensors
from dsa_contracts.core.runtime.signatures import Places
from dsa_contracts.core.scope import Scope

Args = tuple[object, ...]
IsAgain = Callable[[Args, Scope], bool]
"""Whether a call of a scope looks like the one it was made for. False may also mean: not known."""
Leave = Callable[[object, Args, Scope], bool]
"""Whether what a call returned looks like what it was made for and is none of its arguments; if so it has been branded."""


def never(*_anything: object) -> bool:
    """Recognise nothing."""
    return False


def look_of_call(args: Args, scope: Scope, places: Places) -> IsAgain:
    """Return what recognises calls that look like this one; `never` where its tensors are not plain ones."""
    tensors = {at: one for at in places.tensors if isinstance(one := args[at], Tensor)}
    same = same_tensors(tuple(tensors.values()))
    if same is None:
        return never
    known: dict[str, object] = {"same": same, "signature": scope.signature}
    tests = [f"layer {'is' if scope.layer is None else 'is not'} None and scope.signature is signature"]
    for at in sorted({*places.tensors, *places.others} - {*tensors}):
        if not _is_plain(args[at]):
            return never
        known |= {f"value{at}": args[at], f"type{at}": type(args[at])}
        tests.append(f"(a{at} is value{at} or (type(a{at}) is type{at} and a{at} == value{at}))")
    tests.append(f"same({', '.join(f'a{at}' for at in tensors)})")
    brands = _brand_tests(tensors, known, tests)
    for at in places.offsets:
        if at in tensors:
            known[f"offset{at}"] = tensors[at].storage_offset()
            tests.append(f"a{at}.storage_offset() == offset{at}")
    if places.comm is not None:
        group = args[places.comm]
        known |= {"Group": type(group), "size": getattr(group, "size", None), "rank": getattr(group, "rank", None)}
        tests.append(f"type(a{places.comm}) is Group and a{places.comm}.size == size and a{places.comm}.rank == rank")
    lines = [f"{_unpacked(places)} = args", "layer, token = scope.layer, scope.token"]
    # torch's guards end the process on a nested tensor; none has a brand, since `declare` refuses it and no contract has one.
    unbranded = [f"a{at}.is_nested" for at, tensor in tensors.items() if brand_of(tensor) is None]
    tries = [*brands, *([f"if {' or '.join(unbranded)}: return False"] if unbranded else [])]
    if tries:
        lines += [
            "try:",
            *(f"    {line}" for line in tries),
            "except (AttributeError, TypeError, ValueError):",
            "    return False",
        ]
    return cast(IsAgain, _written("is_again(args, scope)", [*lines, "return " + " and ".join(tests)], known))


def _brand_tests(tensors: dict[int, Tensor], known: dict[str, object], tests: list[str]) -> list[str]:
    """Add to `tests` what compares brands with those of these tensors; return the lines that take brands apart."""
    lines = []
    for at, tensor in tensors.items():
        brand = brand_of(tensor)
        if brand is None:
            tests.append(f"getattr(a{at}, {ATTRIBUTE!r}, None) is None")
            continue
        known[f"key{at}"] = brand.key
        lines.append(f"_, k{at}, scope{at}, layer{at} = a{at}.{ATTRIBUTE}")
        tests.append(f"k{at} is key{at} and (scope{at} is token or scope{at} is None)")
        tests.append(f"(layer{at} is layer or layer{at} is None or layer is None or layer{at} == layer)")
    return lines


def look_of_results(result: object, kinds: tuple[tuple[int, Kind], ...], places: Places) -> Leave:
    """Return what recognises results that look like these and brands them; `never` where they are not plain tensors.

    Args:
        result: what the call returned.
        kinds: which of its results is of which kind.
        places: where what stands among its arguments.
    """
    if result is None:
        return _is_nothing
    results = result if type(result) is tuple else (result,)
    tensors = tuple(one for one in results if isinstance(one, Tensor))
    same = same_tensors(tensors) if tensors and len(tensors) == len(results) else None
    if same is None:
        return never
    known: dict[str, object] = {"same": same}
    names = ", ".join(f"r{at}" for at in range(len(results)))
    lines = [f"if type(result) is not tuple or len(result) != {len(results)}: return False", f"{names}, = result"]
    if type(result) is not tuple:
        lines = ["r0 = result"]
    nested = " or ".join(f"r{at}.is_nested" for at in range(len(results)))
    lines += ["try:", f"    if {nested}: return False", "except AttributeError:", "    return False"]
    lines += [f"if not same({names}): return False", "token, layer = scope.token, scope.layer"]
    given = (*places.tensors, *places.others)
    own = [f"r{at} is a{place}" for at in range(len(results)) for place in given]
    if own:
        lines += [f"{_unpacked(places)} = args", f"if {' or '.join(own)}: return False"]
    for at, kind in kinds:
        known |= {f"kind{at}": kind, f"key{at}": kind.key}
        lines.append(f"r{at}.{ATTRIBUTE} = (kind{at}, key{at}, token, layer)")
    return cast(Leave, _written("leave(result, args, scope)", [*lines, "return True"], known))


def _is_plain(value: object) -> bool:
    """Whether a value may be kept and compared by `==`: nothing that holds tensors, no container of parts with types."""
    return value is None or isinstance(value, int | float | str | Enum | type | Marked)


def _is_nothing(result: object, *_others: object) -> bool:
    return result is None


def _unpacked(places: Places) -> str:
    """Return names for all arguments."""
    return "".join(f"a{at}, " for at in range(places.count)).rstrip()


def _written(head: str, lines: list[str], known: dict[str, object]) -> Callable[..., Any]:
    """Return the function with this head and body, which reads `known` as its globals."""
    space = dict(known)
    exec(_compiled("\n    ".join([f"def {head}:", *lines])), space)
    function: Callable[..., Any] = space[head.partition("(")[0]]  # type: ignore[assignment]
    return function


@cache
def _compiled(source: str) -> CodeType:
    return compile(source, "<a call that comes again>", "exec")
