"""`@stage(stub)`: bind an implementation to the contract of its stage.

In production mode the decorator returns the function that it was given. In the other modes it returns a wrapper that
checks the call, brands the results and remembers the signature of a call that passed, so that the same call in the next
layer costs a look-up. `unchecked_function` gives the bare function in any mode.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from torch.compiler import is_compiling

from dsa_contracts.core.contract import StageContract, contract_of, register_implementation
from dsa_contracts.core.errors import TRIES, ContractError, StageInputError
from dsa_contracts.core.modes import Mode, Switch, mode_from_environment
from dsa_contracts.core.runtime.binding import by_position, place_of, same_parameters
from dsa_contracts.core.runtime.call_cache import Remembered
from dsa_contracts.core.runtime.checker import Args, Checker, Seen

Function = TypeVar("Function", bound=Callable[..., object])


def stage(stub: Function, *, mode: Mode | None = None) -> Callable[[Function], Function]:
    """Return the decorator that binds an implementation to `stub`.

    Args:
        stub: the contract, a function under `@contract`.
        mode: the mode; None takes it from `DSA_CONTRACTS`, now.

    Raises:
        ContractDefinitionError: DSA001 (no contract), DSA002 (the implementation has other parameters), DSA003 (mode).
    """
    contract = contract_of(stub)
    chosen = mode or mode_from_environment()

    def bind(function: Function) -> Function:
        same_parameters(contract, function)
        register_implementation(function, contract)
        if chosen is Mode.PRODUCTION:
            return function
        wrapper = _Checked(contract, function, chosen).wrapper()
        register_implementation(wrapper, contract)
        return wrapper  # type: ignore[return-value]

    return bind


def unchecked_function(function: Function) -> Function:
    """Return the implementation without its checks; in production mode the same object."""
    return getattr(function, "__wrapped__", function)


class _Checked:
    """One implementation under the checks of development or values mode."""

    def __init__(self, contract: StageContract, function: Callable[..., object], mode: Mode) -> None:
        self.contract = contract
        self.function = function
        self.mode = mode
        self.checker = Checker(contract, mode, place_of(function))
        self.call = by_position(function)
        self.signature = inspect.signature(function)
        params = self.signature.parameters.values()
        self.num_ordinary = sum(param.kind is not param.KEYWORD_ONLY for param in params)

    def wrapper(self) -> Callable[..., object]:
        """Return the function that stands for the implementation.

        A call that comes again is written flat: what it costs is paid by each stage of each layer.
        """
        function, checker, name = self.function, self.checker, self.contract.name
        call = self.call
        cache, scope_at = checker.cache, checker.places.scope
        # A call with all arguments by position is taken as it is; no call of a stage with keyword-only ones is that.
        num_params = self.num_ordinary if self.num_ordinary == len(self.contract.params) else -1
        recognises, is_collective = self.mode is not Mode.VALUES and scope_at is not None, checker.places.comm is not None

        @wraps(function)
        def checked(*args: object, **kwargs: object) -> object:
            if Switch.unchecked_depth or is_compiling():
                return function(*args, **kwargs)
            if kwargs or len(args) != num_params:
                args = self._positional(args, kwargs)
            if recognises and not Switch.values_depth:
                scope: Any = args[scope_at]  # type: ignore[index]
                try:
                    latest = scope.dims.latest.get(cache, ())
                except AttributeError:  # no scope, which is told below
                    latest = ()
                for found in latest:
                    if found.is_again(args, scope):
                        if is_collective:
                            return self._call(args, found)
                        result = call(*args)
                        if not found.leave(result, args, scope):
                            checker.after(result, args, scope, Seen(found))
                            return result
                        log = scope.log
                        log.calls[name] += 1
                        if found.unknown:
                            log.unknown[name] += found.unknown
                        return result
            return self._call(args, None)

        return checked

    def _positional(self, args: Args, kwargs: dict[str, object]) -> Args:
        """Return all arguments by position; raises StageInputError DSA101 where one is missing or unknown."""
        names = self.contract.names
        is_whole = len(args) <= self.num_ordinary and len(args) + len(kwargs) == len(names)
        if is_whole and kwargs.keys() == set(names[len(args) :]):
            return (*args, *[kwargs[name] for name in names[len(args) :]])
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise StageInputError(
                f"{self.contract.name}: {error}",
                facts=[
                    ("expected", ", ".join(self.contract.names)),
                    ("contract", self.contract.location),
                    ("ran", self.checker.implementation),
                    ("try", TRIES["DSA101"]),
                ],
            ) from None
        bound.apply_defaults()
        return tuple(bound.arguments.values())

    def _call(self, args: Args, known: Remembered | None) -> object:
        """Check, run, check, brand; a call that looks like a known one is not checked anew."""
        checker = self.checker
        try:
            scope = checker.scope_of(args)
            seen = checker.before(args, scope) if known is None else Seen(known)
            checker.agree(args, scope, seen.found)
            result = self.call(*args)
            checker.after(result, args, scope, seen)
        except ContractError as error:
            checker.tell_others(args, error)
            raise
        return result
