"""`@stage(stub)`: bind an implementation to the contract of its stage.

In production mode the decorator returns the function that it was given. In the other modes it returns a wrapper that
checks the call, brands the results and remembers the signature of a call that passed, so that the same call in the next
layer costs a look-up. `unchecked_function` gives the bare function in any mode.
"""

import contextlib
import inspect
import threading
from collections.abc import Callable
from functools import wraps
from threading import Lock
from typing import TypeVar, cast

import torch
from torch import Tensor

from dsa_contracts.batch import CpBatch
from dsa_contracts.brands import ATTRIBUTE, Brand, Kind, output_kind
from dsa_contracts.checks import Passed, check_invariants, check_params, check_stated
from dsa_contracts.comm import Comm
from dsa_contracts.errors import ContractDefinitionError, ContractError, StageInputError, StageOutputError
from dsa_contracts.layout import Layout
from dsa_contracts.modes import Mode, Switch, mode_from_environment
from dsa_contracts.records import StageContract, contract_of, register_implementation
from dsa_contracts.signatures import call_signature, output_signature, places_of
from dsa_contracts.tensors import describe_tensor

Function = TypeVar("Function", bound=Callable[..., object])

MEMORY_LIMIT = 1024
"""Signatures that one stage remembers; past it the oldest is forgotten."""


class _Remembered:
    """A call that passed: what it binds, which outputs are of which kind, and the signatures of outputs that passed."""

    __slots__ = ("bindings", "kinds", "outputs", "passed", "unknown")

    def __init__(self, passed: Passed, kinds: tuple[tuple[int, Kind], ...]) -> None:
        self.bindings = passed.bindings
        self.kinds = kinds
        self.outputs: set[object] = set()
        self.passed = passed
        self.unknown = passed.unknown


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
        _same_parameters(contract, function)
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


def _same_parameters(contract: StageContract, function: Callable[..., object]) -> None:
    """Raise ContractDefinitionError DSA002 unless an implementation has the parameters of its contract, in order."""
    want, got = inspect.signature(contract.stub).parameters, inspect.signature(function).parameters
    if [(p.name, p.kind) for p in want.values()] != [(p.name, p.kind) for p in got.values()]:
        raise ContractDefinitionError(
            f"{function.__name__} is not an implementation of {contract.name}",
            code="DSA002",
            facts=[("expected", ", ".join(want)), ("got", ", ".join(got)), ("contract", contract.location)],
        )


class _Checked:
    """One implementation under the checks of development or values mode."""

    def __init__(self, contract: StageContract, function: Callable[..., object], mode: Mode) -> None:
        self.contract = contract
        self.function = function
        self.reads_values = mode is Mode.VALUES
        self.memory: dict[tuple[object, ...], _Remembered] = {}
        self.lock = threading.Lock()
        self.signature = inspect.signature(function)
        self.places = places_of(contract)

    def wrapper(self) -> Callable[..., object]:
        """Return the function that stands for the implementation."""

        @wraps(self.function)
        def checked(*args: object, **kwargs: object) -> object:
            if Switch.unchecked_depth or torch.compiler.is_compiling():
                return self.function(*args, **kwargs)
            if kwargs or len(args) != len(self.contract.params):
                args = self._positional(args, kwargs)
            try:
                return self._call(args)
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

    def _call(self, args: tuple[object, ...]) -> object:
        """Check, run, check, brand."""
        batch = args[self.places.batch]
        if not isinstance(batch, CpBatch):
            raise StageInputError(
                f"{self.contract.name}: batch is {type(batch).__name__}",
                facts=[("expected", "CpBatch"), ("contract", self.contract.location)],
            )
        reads_values = self.reads_values or Switch.values_depth > 0
        key = call_signature(args, batch, self.places)
        found, checked = self._recall(key, batch), 0
        if found is None:
            found = self._check_inputs(args, batch)
            checked = found.passed.checked
        if reads_values:
            checked += self._check_values(args, batch)
        if self.places.comm is not None:
            self._agree(args, batch)
        result = self.function(*args)
        results = result if isinstance(result, tuple) else (result,) if self.contract.returns else ()
        seen = output_signature(results)
        if reads_values or seen not in found.outputs:
            checked += self._check_results(args, results, batch, found, reads_values=reads_values)
            found.outputs.add(seen)
        for at, kind in found.kinds:
            if results[at] is not None:
                setattr(results[at], ATTRIBUTE, Brand(kind, batch.token, batch.layer))
        if found not in batch.dims.applied:
            self._remember(key, found, batch)
        batch.log.add(self.contract.name, checked=checked, unknown=found.unknown)
        return result

    def _recall(self, key: tuple[object, ...], batch: CpBatch[Layout]) -> _Remembered | None:
        """Return the call of this signature that passed, None where there is none or it contradicts a bound dim."""
        try:
            found = self.memory.get(key)
        except TypeError:
            return None  # an argument that cannot be hashed: such calls are checked each time
        if found is None or found in batch.dims.applied or batch.dims.agrees(found.bindings):
            return found
        return None

    def _check_inputs(self, args: tuple[object, ...], batch: CpBatch[Layout]) -> _Remembered:
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
        return _Remembered(passed, kinds)

    def _remember(self, key: tuple[object, ...], found: _Remembered, batch: CpBatch[Layout]) -> None:
        """Bind the dims of a call that passed, and remember it; the oldest goes when there are too many."""
        for name, value, by in found.bindings:
            batch.dims.bind(name, value, by)
        batch.dims.applied.add(found)
        with contextlib.suppress(TypeError), self.lock:
            self.memory[key] = found
            while len(self.memory) > MEMORY_LIMIT:
                del self.memory[next(iter(self.memory))]

    def _check_values(self, args: tuple[object, ...], batch: CpBatch[Layout]) -> int:
        """Check the invariants that read device data before the call."""
        values = dict(zip(self.contract.names, args, strict=True))
        requires = self.contract.requires
        stated = check_stated(self.contract, values, batch)
        return stated + check_invariants(self.contract, requires, values, batch, reads_data=True, is_output=False)

    def _agree(self, args: tuple[object, ...], batch: CpBatch[Layout]) -> None:
        """Compare this call with the same call on the other ranks, before the payload moves."""
        comm = cast(Comm, args[self.places.comm or 0])
        tensor = next(arg for arg in args if isinstance(arg, Tensor))
        width = f"{str(tensor.dtype).removeprefix('torch.')}[rows, {', '.join(map(str, tensor.shape[1:]))}]"
        comm.agree(f"{self.contract.name} layer={batch.layer} {width} {batch.fingerprint}")

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
        found: _Remembered,
        *,
        reads_values: bool,
    ) -> int:
        """Check return values against the contract under what the arguments have bound."""
        contract = self.contract
        if len(results) != len(contract.returns):
            raise ContractDefinitionError(
                f"{contract.name} returned {len(results)} values, its contract has {len(contract.returns)}"
            )
        for name, arg in zip(contract.names, args, strict=True):
            if isinstance(arg, Tensor) and any(arg is result for result in results):
                raise StageOutputError(
                    f"{contract.name}: returned its argument {name} itself",
                    code="DSA123",
                    facts=[("got", describe_tensor(arg)), ("try", "return a view of it: a brand is on an object")],
                )
        passed = Passed(dict(found.passed.variables), dict(found.passed.dims))
        outputs = dict(zip((record.name for record in contract.returns), results, strict=True))
        check_params(contract, contract.returns, outputs, batch, passed, is_output=True)
        values = dict(zip(contract.names, args, strict=True)) | outputs
        passed.checked += check_invariants(contract, contract.ensures, values, batch, reads_data=False, is_output=True)
        if reads_values:
            passed.checked += check_invariants(contract, contract.ensures, values, batch, reads_data=True, is_output=True)
        return passed.checked
