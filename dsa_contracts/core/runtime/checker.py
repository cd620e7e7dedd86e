"""The checks around one function's calls: before a call, and after it; and the cache of calls that passed.

Both users are thin: `stage` calls the function in between, `observe` is told of a call that somebody else makes.
"""

from collections.abc import Callable
from functools import wraps
from typing import NamedTuple, TypeVar, cast

from torch import Tensor

from dsa_contracts.core.brands import make_brand, output_kind
from dsa_contracts.core.comm import Group
from dsa_contracts.core.contract import StageContract
from dsa_contracts.core.errors import TRIES, ContractError, StageInputError
from dsa_contracts.core.modes import Mode, Switch, can_read_values
from dsa_contracts.core.parts import Parts
from dsa_contracts.core.runtime.binding import refuse_arguments, refuse_other_number
from dsa_contracts.core.runtime.call_cache import CallCache, Remembered
from dsa_contracts.core.runtime.check import Passed, check_invariants, check_params, check_stated
from dsa_contracts.core.runtime.looks import look_of_results
from dsa_contracts.core.runtime.signatures import call_signature, output_signature, places_of, shared_facts
from dsa_contracts.core.scope import Scope, current_scope, lone_scope
from dsa_contracts.core.views import brand_result, set_brand

Args = tuple[object, ...]
Check = TypeVar("Check", bound=Callable[..., object])


class Seen(NamedTuple):
    """A call whose arguments passed.

    Attributes:
        found: what is remembered of such calls.
        key: its signature; None where it was recognised by its looks.
        checked: facts that were compared anew.
    """

    found: Remembered
    key: tuple[object, ...] | None = None
    checked: int = 0


def _says_what_ran(check: Check) -> Check:
    """Let the errors of a check name the implementation beside the contract."""

    @wraps(check)
    def checked(self: "Checker", *args: object, **kwargs: object) -> object:
        try:
            return check(self, *args, **kwargs)
        except ContractError as error:
            error.add_fact("ran", self.implementation, after="contract")
            raise

    return cast(Check, checked)


class Checker:
    """The checks of one contract around one function, with a call cache of their own.

    Attributes:
        contract: the contract.
        cache: the calls that passed.
        places: where what stands among the arguments.
        implementation: what ran, in words; empty where nobody knows.
    """

    def __init__(self, contract: StageContract, mode: Mode, implementation: str = "", *, is_watched: bool = False) -> None:
        """Start with an empty cache; a watched call may return the very objects that it was given."""
        self.contract = contract
        self.implementation = implementation
        self.cache = CallCache(is_watched=is_watched)
        self._is_watched = is_watched
        self.places = places_of(contract)
        self._always_reads_values = mode is Mode.VALUES

    @property
    def reads_values(self) -> bool:
        """Whether device data is read now: in values mode, unless a stream captures or a compiler traces."""
        return (self._always_reads_values or Switch.values_depth > 0) and can_read_values()

    def scope_of(self, args: Args) -> Scope:
        """Return the scope of a call: its argument, else the one that the calls run in, else one of its own.

        Raises:
            StageInputError: DSA101, the argument is no scope.
        """
        at = self.places.scope
        if at is None:
            return current_scope() or lone_scope()
        scope = args[at]
        if isinstance(scope, Scope):
            return scope
        param = self.contract.params[at]
        raise StageInputError(
            f"{self.contract.name}: {param.name} is {type(scope).__name__}",
            facts=[
                ("expected", param.kind_text),
                ("contract", self.contract.location),
                ("ran", self.implementation),
                ("try", TRIES["DSA101"]),
            ],
        )

    def before(self, args: Args, scope: Scope) -> Seen:
        """Check the arguments of a call, unless such a call has passed.

        Raises:
            StageInputError: DSA1nn, and the codes of the contract's invariants.
        """
        key = call_signature(args, scope, self.places)
        found, checked = self.cache.recall(key, scope), 0
        if found is None:
            found = self._check_arguments(args, scope)
            checked = found.passed.checked
        if self.reads_values:
            checked += self._check_values(args, scope)
        return Seen(found, key, checked)

    def agree(self, args: Args, scope: Scope, found: Remembered) -> None:
        """Before a collective, ask the other ranks whether they make the same call."""
        if self.places.comm is not None and isinstance(args[self.places.comm], Group):
            group = cast(Group, args[self.places.comm])
            group.agree(f"{self.contract.name} layer={scope.layer} {found.facts} {scope.fingerprint}")

    def after(self, result: object, args: Args, scope: Scope, call: Seen) -> None:
        """Check what a call returned unless such results have passed, brand it, and count and remember the call.

        Args:
            result: what it returned.
            args: its arguments, by position.
            scope: its scope.
            call: what `before` returned.

        Raises:
            StageOutputError: DSA123, DSA2nn, and the codes of the contract's invariants.
        """
        results = result if isinstance(result, tuple) else () if result is None and not self.contract.returns else (result,)
        refuse_other_number(self.contract, results, scope, self.implementation)
        if not self._is_watched:
            refuse_arguments(self.contract, args, results, scope, self.implementation)
        found, checked = call.found, call.checked
        reads_values = call.key is not None and self.reads_values
        seen = output_signature(results)
        if reads_values or not found.has_returned(seen, scope.dims):
            passed = self._check_results(args, results, scope, found, reads_values=reads_values)
            found.add_results(seen, passed.bindings, scope.dims)
            checked += passed.checked
        if call.key is not None:
            # Before results are branded: a watched call may return its argument, whose brand is part of the looks.
            if found not in scope.dims.applied:
                self.cache.keep(call.key, found, scope)
            if not reads_values:
                self.cache.expect_again(call.key, args, scope, self.places)
        if not found.leave(result, args, scope):
            found.leave = look_of_results(result, found.kinds, self.places, is_watched=self._is_watched)
            self._brand(results, found, scope)
        scope.log.add(self.contract.name, checked, found.unknown)

    def _brand(self, results: Args, found: Remembered, scope: Scope) -> None:
        """Brand what a call returned."""
        for at, kind in found.kinds:
            one = results[at]
            if isinstance(one, Parts):
                one.set_brands(kind, scope)
            elif isinstance(one, Tensor):
                put = set_brand if self._is_watched else brand_result
                put(one, make_brand(kind, scope.token, scope.layer))

    def tell_others(self, args: Args, error: ContractError) -> None:
        """Let the other ranks of a collective know that this rank will not come."""
        at = self.places.comm
        group = args[at] if at is not None and at < len(args) else None
        if isinstance(group, Group) and not error.code.startswith("DSA5"):
            raise group.fail(str(error)) from error

    @_says_what_ran
    def _check_arguments(self, args: Args, scope: Scope) -> Remembered:
        """Check all that metadata and brands say of the arguments."""
        contract, passed = self.contract, Passed({}, {})
        values = dict(zip(contract.names, args, strict=True))
        check_params(contract, contract.params, values, scope, passed, is_output=False)
        passed.checked += check_invariants(contract, contract.requires, values, scope, reads_data=False, is_output=False)
        kinds = tuple(
            (at, output_kind(record.spec, passed.variables, scope, f"{contract.name}.{record.name}"))
            for at, record in enumerate(contract.returns)
            if record.spec is not None
        )
        return Remembered(passed, kinds, shared_facts(args) if self.places.comm is not None else "")

    @_says_what_ran
    def _check_values(self, args: Args, scope: Scope) -> int:
        """Check the invariants that read device data before the call."""
        scope.check_itself(self.contract.name, self.contract.location)
        values = dict(zip(self.contract.names, args, strict=True))
        requires = self.contract.requires
        stated = check_stated(self.contract, values, scope)
        return stated + check_invariants(self.contract, requires, values, scope, reads_data=True, is_output=False)

    @_says_what_ran
    def _check_results(self, args: Args, results: Args, scope: Scope, found: Remembered, *, reads_values: bool) -> Passed:
        """Check return values against the contract under what the arguments have bound; return what they bind."""
        contract = self.contract
        passed = Passed(dict(found.passed.variables), dict(found.passed.dims))
        names = (*contract.names, *(record.name for record in contract.returns))
        values = dict(zip(names, (*args, *results), strict=True))
        check_params(contract, contract.returns, values, scope, passed, is_output=True)
        passed.checked += check_invariants(contract, contract.ensures, values, scope, reads_data=False, is_output=True)
        if reads_values:
            passed.checked += check_invariants(contract, contract.ensures, values, scope, reads_data=True, is_output=True)
        return passed
