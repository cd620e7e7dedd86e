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
from operator import itemgetter
from typing import Any, Literal, TypeVar, cast

from torch.compiler import is_compiling

from dsa_contracts.core.comm import Group, PassiveComm
from dsa_contracts.core.contract import StageContract, contract_of
from dsa_contracts.core.errors import ArgumentError, ContractError
from dsa_contracts.core.modes import Mode, Switch, mode_from_environment
from dsa_contracts.core.parts import ABSENT
from dsa_contracts.core.runtime.call_cache import Remembered
from dsa_contracts.core.runtime.checker import Args, Checker, Seen
from dsa_contracts.core.scope import Scope, current_scope

OnFault = Literal["raise", "log"] | Callable[[ContractError], object]
Adaptation = Callable[[Any], object]
"""Turns what an engine has into what the contract names: a view of it, never a copy."""

Function = TypeVar("Function", bound=Callable[..., object])

Watched = tuple[Args, Scope, Remembered, Seen | None]
"""A call whose arguments passed: arguments by position, scope, what is remembered of it, and what to do at its end."""

LOG = logging.getLogger("dsa_contracts")

_ORDERS_LIMIT = 256
"""Combinations of names that one observer keeps ready."""


class Observer:
    """The checks of one contract around calls that are made elsewhere, with a call cache of their own.

    Attributes:
        contract: the contract.
        calls: calls whose arguments were looked at.
        skipped: calls that belonged to no scope, or were made while a compiler traced, and were not looked at.
        faults: faults by code, each counted whether or not it was reported before.
    """

    def __init__(
        self, contract: StageContract, mode: Mode, on_fault: OnFault, adapt: Mapping[str, Adaptation], name: str
    ) -> None:
        """Start with an empty call cache; see `observe`."""
        self.contract = contract
        self.calls = 0
        self.skipped = 0
        self.faults: Counter[str] = Counter()
        self._is_off = mode is Mode.PRODUCTION
        self._on_fault = on_fault
        self._checker = Checker(contract, mode, name, is_watched=True)
        self._scope_at = self._checker.places.scope
        self._reported: set[tuple[str, str]] = set()
        self._always_reads_values = mode is Mode.VALUES
        self._arguments = _Order(contract.name, contract.names, "an argument", adapt)
        self._results = _Order(contract.name, tuple(record.name for record in contract.returns), "a return value", adapt)

    def before(self, **given: object) -> Watched | None:
        """Check what a call is given; returns what `after` takes, None where there is nothing to go on with.

        Args:
            given: arguments by the names of the contract. One that is left out is not checked; a scope that is left out is
                the one of the `forward` in which the call is made.

        Raises:
            StageInputError: a fault, where faults are raised.
            ArgumentError: DSA602, the contract has no parameter of that name, or a group is given that is no `PassiveComm`.
        """
        if self._is_off or Switch.unchecked_depth or is_compiling():
            self.skipped += 1
            return None
        args = self._arguments.of(given)
        at = self._scope_at
        scope: object = args[at] if at is not None else current_scope() or Scope()
        if scope is ABSENT and at is not None:
            scope = current_scope()
            args = (*args[:at], scope, *args[at + 1 :])
        if scope is None:
            self.skipped += 1
            return None
        self.calls += 1
        checker = self._checker
        try:
            if not isinstance(scope, Scope):
                scope = checker.scope_of(args)
            if not (self._always_reads_values or Switch.values_depth):
                for found in scope.dims.latest.get(checker.cache, ()):
                    if found.is_again(args, scope):
                        checker.agree(args, scope, found)
                        return args, scope, found, None
            self._refuse_active_group(args)
            seen = checker.before(args, scope)
            checker.agree(args, scope, seen.found)
        except ArgumentError:
            raise
        except ContractError as error:
            self._report(error)
            return None
        return args, scope, seen.found, seen

    def after(self, seen: Watched | None, **returned: object) -> None:
        """Check and brand what a call returned, and remember the call.

        Args:
            seen: what `before` returned; where that is None, nothing is done.
            returned: return values by the names of the contract; what is left out is neither checked nor branded. What the
                call wrote in place is looked at through the arguments.

        Raises:
            StageOutputError: a fault, where faults are raised.
            ArgumentError: DSA602, the contract has no return value of that name.
        """
        if seen is None:
            return
        args, scope, found, first = seen
        results = self._results.of(returned)
        result = results if len(results) > 1 else results[0] if results else None
        if first is None and found.leave(result, args, scope):
            log, name = scope.log, self.contract.name
            log.calls[name] += 1
            if found.unknown:
                log.unknown[name] += found.unknown
            return
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
        if self._is_off:
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


class _Order:
    """Values by name put in the order of a contract, those that are adapted turned into what it names."""

    def __init__(self, stage: str, names: tuple[str, ...], what: str, adapt: Mapping[str, Adaptation]) -> None:
        self._stage, self._names, self._what = stage, names, what
        self._adapt = {name: turn for name, turn in adapt.items() if name in names}
        self._orders: dict[tuple[str, ...], Callable[[Args], Args]] = {}

    def of(self, values: dict[str, object]) -> Args:
        """Return all values by position, `ABSENT` for those that are left out."""
        for name, turn in self._adapt.items():
            if name in values:
                values[name] = turn(values[name])
        given = tuple(values)
        order = self._orders.get(given)
        if order is None:
            order = self._order_of(given)
        return order((*values.values(), ABSENT))

    def _order_of(self, given: tuple[str, ...]) -> Callable[[Args], Args]:
        """Return what puts values with these names in order; raises ArgumentError DSA602 for a name that there is not."""
        for name in given:
            if name not in self._names:
                known = ", ".join(self._names) or "none"
                raise ArgumentError(f"{self._stage} has not {self._what} {name}; it has {known}")
        places = [given.index(name) if name in given else len(given) for name in self._names]
        if len(self._orders) >= _ORDERS_LIMIT:
            self._orders.clear()
        return self._orders.setdefault(given, _picking(places))


def _picking(places: list[int]) -> Callable[[Args], Args]:
    """Return a function that picks the values at some places; `itemgetter` gives no tuple for fewer than two."""
    if len(places) > 1:
        return cast(Callable[[Args], Args], itemgetter(*places))
    return lambda values: tuple([values[at] for at in places])


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
