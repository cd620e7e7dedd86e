"""`@stage(stub)`: bind an implementation to the contract of its stage.

In production mode the decorator returns the function that it was given. In the other modes it returns a wrapper that
checks the call, brands the results and remembers the signature of a call that passed, so that the same call in the next
layer costs a look-up. `unchecked_function` gives the bare function in any mode.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import TypeVar, cast

import torch
from torch import Tensor

from dsa_contracts.batch import CpBatch
from dsa_contracts.batch_itself import check_batch
from dsa_contracts.binding import refuse_other_objects, same_parameters
from dsa_contracts.brands import make_brand, output_kind, set_brand
from dsa_contracts.checks import Passed, check_invariants, check_params, check_stated
from dsa_contracts.comm import Comm
from dsa_contracts.errors import ContractError, StageInputError
from dsa_contracts.layout import Layout
from dsa_contracts.memory import Memory, Remembered
from dsa_contracts.modes import Mode, Switch, mode_from_environment
from dsa_contracts.records import StageContract, contract_of, register_implementation
from dsa_contracts.repeats import look_of_results
from dsa_contracts.signatures import call_signature, output_signature, places_of, shared_facts

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
        self.reads_values = mode is Mode.VALUES
        self.memory = Memory()
        self.signature = inspect.signature(function)
        self.places = places_of(contract)

    def wrapper(self) -> Callable[..., object]:
        """Return the function that stands for the implementation.

        A call that comes again is written flat: what it costs is paid by each stage of each layer.
        """
        function, memory, name = self.function, self.memory, self.contract.name
        batch_at, num_params = self.places.batch, len(self.contract.params)
        recognises, is_collective = not self.reads_values, self.places.comm is not None

        @wraps(function)
        def checked(*args: object, **kwargs: object) -> object:
            if Switch.unchecked_depth or torch.compiler.is_compiling():
                return function(*args, **kwargs)
            if kwargs or len(args) != num_params:
                args = self._positional(args, kwargs)
            batch, known = args[batch_at], None
            if recognises and not Switch.values_depth and isinstance(batch, CpBatch):
                for found in batch.dims.latest.get(memory, ()):
                    if found.is_again(args, batch):
                        if is_collective:
                            known = found
                            break
                        result = function(*args)
                        if not found.leave(result, args, batch):
                            return self._results_of(result, args, batch, found, 0)
                        log = batch.log
                        log.calls[name] += 1
                        if found.unknown:
                            log.unknown[name] += found.unknown
                        return result
            try:
                return self._call(args, known)
            except ContractError as error:
                self._tell_others(args, error)
                raise

        return checked

    def _positional(self, args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[object, ...]:
        """Return all arguments by position; raises StageInputError DSA101 where one is missing or unknown."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise StageInputError(
                f"{self.contract.name}: {error}",
                facts=[("expected", ", ".join(self.contract.names)), ("contract", self.contract.location)],
            ) from None
        bound.apply_defaults()
        return tuple(bound.arguments.values())

    def _call(self, args: tuple[object, ...], known: Remembered | None) -> object:
        """Check, run, check, brand; a call that looks like a known one is not checked anew."""
        batch = args[self.places.batch]
        if not isinstance(batch, CpBatch):
            raise StageInputError(
                f"{self.contract.name}: batch is {type(batch).__name__}",
                facts=[("expected", "CpBatch"), ("contract", self.contract.location)],
            )
        reads_values = self.reads_values or Switch.values_depth > 0
        if known is not None:
            self._agree(args, batch, known)
            return self._results_of(self.function(*args), args, batch, known, 0)
        key = call_signature(args, batch, self.places)
        found, checked = self.memory.recall(key, batch), 0
        if found is None:
            found = self._check_inputs(args, batch)
            checked = found.passed.checked
        if reads_values:
            checked += self._check_values(args, batch)
        self._agree(args, batch, found)
        result = self._results_of(self.function(*args), args, batch, found, checked, reads_values=reads_values)
        if found not in batch.dims.applied:
            self.memory.keep(key, found, batch)
        if not reads_values:
            self.memory.expect_again(key, args, batch, self.places)
        return result

    def _agree(self, args: tuple[object, ...], batch: CpBatch[Layout], found: Remembered) -> None:
        """Before a collective, ask the other ranks whether they make the same call."""
        if self.places.comm is not None:
            comm = cast(Comm, args[self.places.comm])
            comm.agree(f"{self.contract.name} layer={batch.layer} {found.facts} {batch.fingerprint}")

    def _results_of(
        self,
        result: object,
        args: tuple[object, ...],
        batch: CpBatch[Layout],
        found: Remembered,
        checked: int,
        *,
        reads_values: bool = False,
    ) -> object:
        """Check what a call returned unless such results have passed, brand it, count the call, and give it back."""
        results = result if isinstance(result, tuple) else () if result is None and not self.contract.returns else (result,)
        refuse_other_objects(self.contract, args, results, batch)
        seen = output_signature(results)
        if reads_values or not found.has_returned(seen, batch.dims):
            passed = self._check_results(args, results, batch, found, reads_values=reads_values)
            found.add_results(seen, passed.bindings, batch.dims)
            checked += passed.checked
        if not found.leave(result, args, batch):
            found.leave = look_of_results(result, found.kinds, self.places)
            for at, kind in found.kinds:
                tensor = results[at]
                if isinstance(tensor, Tensor):
                    set_brand(tensor, make_brand(kind, batch.token, batch.layer))
        batch.log.add(self.contract.name, checked, found.unknown)
        return result

    def _check_inputs(self, args: tuple[object, ...], batch: CpBatch[Layout]) -> Remembered:
        """Check all that metadata and brands say of the arguments."""
        contract, passed = self.contract, Passed({}, {})
        values = dict(zip(contract.names, args, strict=True))
        check_params(contract, contract.params, values, batch, passed, is_output=False)
        passed.checked += check_invariants(contract, contract.requires, values, batch, reads_data=False, is_output=False)
        kinds = tuple(
            (at, output_kind(record.spec, passed.variables, batch.layout.name, f"{contract.name}.{record.name}"))
            for at, record in enumerate(contract.returns)
            if record.spec is not None
        )
        return Remembered(passed, kinds, shared_facts(args) if self.places.comm is not None else "")

    def _check_values(self, args: tuple[object, ...], batch: CpBatch[Layout]) -> int:
        """Check the invariants that read device data before the call."""
        check_batch(batch, self.contract.name, self.contract.location)
        values = dict(zip(self.contract.names, args, strict=True))
        requires = self.contract.requires
        stated = check_stated(self.contract, values, batch)
        return stated + check_invariants(self.contract, requires, values, batch, reads_data=True, is_output=False)

    def _tell_others(self, args: tuple[object, ...], error: ContractError) -> None:
        """Let the other ranks of a collective know that this rank will not come."""
        comm_at = self.places.comm
        comm = args[comm_at] if comm_at is not None and comm_at < len(args) else None
        if isinstance(comm, Comm) and not error.code.startswith("DSA5"):
            raise comm.fail(str(error)) from error

    def _check_results(
        self,
        args: tuple[object, ...],
        results: tuple[object, ...],
        batch: CpBatch[Layout],
        found: Remembered,
        *,
        reads_values: bool,
    ) -> Passed:
        """Check return values against the contract under what the arguments have bound; return what they bind."""
        contract = self.contract
        passed = Passed(dict(found.passed.variables), dict(found.passed.dims))
        names = (*contract.names, *(record.name for record in contract.returns))
        values = dict(zip(names, (*args, *results), strict=True))
        check_params(contract, contract.returns, values, batch, passed, is_output=True)
        passed.checked += check_invariants(contract, contract.ensures, values, batch, reads_data=False, is_output=True)
        if reads_values:
            passed.checked += check_invariants(contract, contract.ensures, values, batch, reads_data=True, is_output=True)
        return passed
