"""`observe(stub)`: the checks of a contract around a call that somebody else makes.

Nothing is wrapped and nothing is called: who watches says what the call was given, by the names of the contract, and then
what it returned. What the call does not show is left out, and what reads it is not checked. Results are branded in place.

    watch = observe(contracts.project, on_fault="log")
    seen = watch.before(batch=batch, hidden=hidden, weights=weights)
    engine_function(...)
    watch.after(seen, projected=out)
"""

import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Literal, TypeVar, cast

from torch.compiler import is_compiling

from dsa_contracts.core.comm import Group, PassiveComm
from dsa_contracts.core.contract import StageContract, contract_of
from dsa_contracts.core.errors import ArgumentError, ContractError
from dsa_contracts.core.modes import Mode, Switch, mode_from_environment
from dsa_contracts.core.parts import ABSENT
from dsa_contracts.core.runtime.call_cache import Remembered
from dsa_contracts.core.runtime.checker import Args, Checker, Seen
from dsa_contracts.core.runtime.writing import written
from dsa_contracts.core.scope import Scope, current_scope

OnFault = Literal["raise", "log"] | Callable[[ContractError], object]
Adaptation = Callable[[Any], object]
"""Turns what an engine has into what the contract names: a view of it, never a copy."""

Function = TypeVar("Function", bound=Callable[..., object])

Watched = tuple[Args, Scope, Remembered, Seen | None]
"""A call whose arguments passed: arguments by position, scope, what is remembered of it, and what to do at its end."""

LOG = logging.getLogger("dsa_contracts")


class Observer:
    """The checks of one contract around calls that are made elsewhere, with a call cache of their own.

    Attributes:
        contract: the contract.
        calls: calls whose arguments were looked at.
        skipped: calls that belonged to no scope, or were made while a compiler traced, and were not looked at.
        faults: faults by code, each counted whether or not it was reported before.
        is_off: whether nothing is looked at, as in production mode.
    """

    def __init__(
        self, contract: StageContract, mode: Mode, on_fault: OnFault, adapt: Mapping[str, Adaptation], name: str
    ) -> None:
        """Start with an empty call cache; see `observe`."""
        self.contract = contract
        self.calls = 0
        self.skipped = 0
        self.faults: Counter[str] = Counter()
        self.is_off = mode is Mode.PRODUCTION
        self._on_fault = on_fault
        self._checker = Checker(contract, mode, name, is_watched=True)
        self._scope_at = self._checker.places.scope
        self._reported: set[tuple[str, str]] = set()
        self._always_reads_values = mode is Mode.VALUES
        self._results = tuple(record.name for record in contract.returns)
        adapted = {name: turn for name, turn in adapt.items() if name in (*contract.names, *self._results)}
        # Parameters of the contract have names of their own choice: all other names in the source begin with two underscores.
        known: dict[str, object] = {f"__adapt_{name}": turn for name, turn in adapted.items()}
        known |= {"__ABSENT": ABSENT, "__Switch": Switch, "__is_compiling": is_compiling, "__cache": self._checker.cache}
        known |= {"__watch": self, "__agree": self._checker.agree, "__current_scope": current_scope, "__Scope": Scope}
        known["__stage"] = contract.name
        self._before = written(*self._before_source(adapted), known)
        self._after = written(*self._after_source(adapted), known)

    @property
    def before(self) -> Callable[..., Watched | None]:
        """Check what a call is given: `before(**given)`.

        It takes arguments by the names of the contract. One that is left out is not checked; a scope that is left out is the
        one of the `forward` in which the call is made. It returns what `after` takes, None where there is nothing to go on
        with.

        Raises:
            StageInputError: a fault, where faults are raised.
            ArgumentError: DSA602, the contract has no parameter of that name, or a group is given that is no `PassiveComm`.
        """
        return self._before

    @property
    def after(self) -> Callable[..., None]:
        """Check and brand what a call returned, and remember the call: `after(seen, **returned)`.

        It takes what `before` returned, and does nothing where that is None; and return values by the names of the contract.
        What is left out is neither checked nor branded. What the call wrote in place is looked at through the arguments.

        Raises:
            StageOutputError: a fault, where faults are raised.
            ArgumentError: DSA602, the contract has no return value of that name.
        """
        return self._after

    def _before_source(self, adapted: Mapping[str, object]) -> tuple[str, list[str]]:
        """Return head and body of `before`: a call that comes again is recognised here, any other goes on by `look_at`."""
        names = self.contract.names
        shown = "".join(f"{name}=__ABSENT, " for name in names)
        lines = ["if __watch.is_off or __Switch.unchecked_depth or __is_compiling(): return __watch.skip()"]
        lines.append("if __unknown: __watch.refuse_names(__unknown)")
        lines += _adapting(names, adapted)
        if self._scope_at is None:
            lines.append("__scope = __current_scope() or __Scope()")
        else:
            own = names[self._scope_at]
            lines.append(f"if {own} is __ABSENT: {own} = __current_scope()")
            lines += [f"if {own} is None: return __watch.skip()", f"__scope = {own}"]
        lines += ["__watch.calls += 1", f"__args = ({''.join(f'{name}, ' for name in names)})"]
        if not self._always_reads_values:
            lines += [
                "if not __Switch.values_depth and isinstance(__scope, __Scope):",
                "    for __found in __scope.dims.latest.get(__cache, ()):",
                "        if __found.is_again(__args, __scope):",
                *(["            __agree(__args, __scope, __found)"] if self._checker.places.comm is not None else []),
                "            return __args, __scope, __found, None",
            ]
        return f"before(*, {shown}**__unknown)", [*lines, "return __watch.look_at(__args, __scope)"]

    def _after_source(self, adapted: Mapping[str, object]) -> tuple[str, list[str]]:
        """Return head and body of `after`."""
        shown = "".join(f"{name}=__ABSENT, " for name in self._results)
        return f"after(__seen, /, {f'*, {shown}' if shown else ''}**__unknown)", [
            "if __seen is None: return",
            "if __unknown: __watch.refuse_names(__unknown)",
            *_adapting(self._results, adapted),
            "__args, __scope, __found, __first = __seen",
            f"__result = {', '.join(self._results) or 'None'}",
            "if __first is None and __found.leave(__result, __args, __scope):",
            "    __log = __scope.log",
            "    __log.calls[__stage] += 1",
            "    if __found.unknown: __log.unknown[__stage] += __found.unknown",
            "else:",
            "    __watch.look_at_results(__result, __seen)",
        ]

    def refuse_names(self, unknown: Mapping[str, object]) -> None:
        """Raise ArgumentError DSA602 for names that the contract does not have."""
        own = ", ".join(self.contract.names)
        returned = f", and returns {', '.join(self._results)}" if self._results else ""
        raise ArgumentError(f"{self.contract.name} has no {', '.join(unknown)}; it has {own}{returned}")

    def skip(self) -> None:
        """Count a call that is not looked at."""
        self.skipped += 1

    def look_at(self, args: Args, scope: object) -> Watched | None:
        """Check the arguments of a call that was not recognised; see `before`."""
        checker = self._checker
        try:
            mine = scope if isinstance(scope, Scope) else checker.scope_of(args)
            self._refuse_active_group(args)
            seen = checker.before(args, mine)
            checker.agree(args, mine, seen.found)
        except ArgumentError:
            raise
        except ContractError as error:
            self._report(error)
            return None
        return args, mine, seen.found, seen

    def look_at_results(self, result: object, call: Watched) -> None:
        """Check the results of a call that were not recognised; see `after`."""
        args, scope, found, first = call
        try:
            self._checker.after(result, args, scope, first or Seen(found))
        except ContractError as error:
            self._report(error)

    def around(
        self,
        function: Function,
        given: Callable[..., Mapping[str, object]],
        returned: Callable[[Any], Mapping[str, object]] | None = None,
    ) -> Function:
        """Return a function that calls `function` between `before` and `after`; in production mode the same object.

        Args:
            function: any function, with parameters of its own.
            given: takes the same arguments, and returns those that the contract names.
            returned: takes what the function returned, and returns the values that the contract names; None for none.
        """
        if self.is_off:
            return function

        @wraps(function)
        def watched(*args: object, **kwargs: object) -> object:
            seen = self.before(**given(*args, **kwargs))
            result = function(*args, **kwargs)
            self.after(seen, **({} if returned is None else returned(result)))
            return result

        return cast(Function, watched)

    def _refuse_active_group(self, args: Args) -> None:
        """Raise ArgumentError DSA602 where the group of the call is one that the checks would talk through."""
        at = self._checker.places.comm
        group = None if at is None else args[at]
        if isinstance(group, Group) and not isinstance(group, PassiveComm):
            kind = type(group).__name__
            raise ArgumentError(
                f"{self.contract.name}: {self.contract.comm_param} is {kind}, and a watched call adds no collective; "
                f"give PassiveComm({group.size}, {group.rank}), or leave it out"
            )

    def _report(self, error: ContractError) -> None:
        """Raise a fault, or hand it on: each distinct one once. Two that differ in numbers alone are one."""
        self.faults[error.code] += 1
        if self._on_fault == "raise":
            raise error
        kind = (error.code, re.sub(r"\d+", "#", error.headline))
        if kind in self._reported:
            return
        self._reported.add(kind)
        if callable(self._on_fault):
            self._on_fault(error)
        else:
            LOG.error("%s", error)


def _adapting(names: tuple[str, ...], adapted: Mapping[str, object]) -> list[str]:
    """Return the lines that turn what an engine has into what the contract names."""
    return [f"if {name} is not __ABSENT: {name} = __adapt_{name}({name})" for name in names if name in adapted]


def observe(
    stub: Callable[..., object],
    on_fault: OnFault = "raise",
    *,
    adapt: Mapping[str, Adaptation] | None = None,
    name: str = "",
    mode: Mode | None = None,
) -> Observer:
    """Return an observer of calls that do what a contract says.

    Args:
        stub: the contract, a function under `@contract`.
        on_fault: what a fault does: it is raised, logged once under `dsa_contracts`, or given once to this function.
        adapt: by argument or return value, what turns the engine's object into what the contract names, as
            `lambda x: x.squeeze(1)` does for rows in three dims. A view keeps the brand of what it shows.
        name: what is watched, for messages: the engine's function.
        mode: the mode; None takes it from `DSA_CONTRACTS`, now. In production mode nothing is looked at.

    Raises:
        ContractDefinitionError: DSA001 (no contract), DSA003 (mode).
        ArgumentError: DSA602, `on_fault` is none of the three, or `adapt` names what the contract does not have.
    """
    contract = contract_of(stub)
    if on_fault not in ("raise", "log") and not callable(on_fault):
        raise ArgumentError(f"on_fault is {on_fault!r}; it must be 'raise', 'log' or a function of the error")
    known = (*contract.names, *(record.name for record in contract.returns))
    for one in adapt or {}:
        if one not in known:
            raise ArgumentError(f"adapt names {one}; {contract.name} has {', '.join(known)}")
    return Observer(contract, mode or mode_from_environment(), on_fault, adapt or {}, name)
