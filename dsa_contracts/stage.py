"""`@stage(stub)`: bind an implementation to the contract of its stage.

In production mode the decorator returns the function that it was given. In the other modes it returns a wrapper that
checks the call, brands the results and remembers the signature of a call that passed, so that the same call in the next
layer costs a look-up. `unchecked_function` gives the bare function in any mode.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import TypeVar

import torch
from torch import Tensor

from dsa_contracts.batch import CpBatch
from dsa_contracts.brands import Brand, Kind, output_kind, set_brand
from dsa_contracts.checks import Passed, check_invariants, check_params
from dsa_contracts.comm import Comm
from dsa_contracts.errors import ContractDefinitionError, ContractError, StageInputError
from dsa_contracts.layout import Layout
from dsa_contracts.modes import Mode, is_reading_values, is_suspended, mode_from_environment
from dsa_contracts.records import StageContract, contract_of, register_implementation
from dsa_contracts.signatures import call_signature, output_signature
from dsa_contracts.tensors import describe_tensor

Function = TypeVar("Function", bound=Callable[..., object])

MEMORY_LIMIT = 1024
"""Signatures that one stage remembers; past it the oldest is forgotten."""


class _Remembered:
    """A call that passed: what it binds, what its outputs are, and the signatures of outputs that passed."""

    __slots__ = ("bindings", "kinds", "outputs", "passed", "unknown")

    def __init__(self, passed: Passed, kinds: tuple[Kind, ...]) -> None:
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
        self.memory: dict[object, _Remembered] = {}
        self.signature = inspect.signature(function)
        self.batch_at = contract.names.index("batch")
        self.comm_at = contract.names.index(contract.comm_param) if contract.comm_param else None

    def wrapper(self) -> Callable[..., object]:
        """Return the function that stands for the implementation."""

        @wraps(self.function)
        def checked(*args: object, **kwargs: object) -> object:
            if is_suspended() or torch.compiler.is_compiling():
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
        batch = args[self.batch_at]
        if not isinstance(batch, CpBatch):
            raise StageInputError(
                f"{self.contract.name}: batch is {type(batch).__name__}",
                facts=[("expected", "CpBatch"), ("contract", self.contract.location)],
            )
        key = call_signature(args, batch)
        found = self.memory.get(key)
        checked = 0
        if found is None or not self._applies(found, batch):
            found = self._check_inputs(args, batch)
            checked = found.passed.checked
            self._remember(key, found)
        if self.reads_values or is_reading_values():
            checked += self._check_values(args, batch)
        if self.comm_at is not None:
            self._agree(args, batch)
        result = self.function(*args)
        checked += self._check_outputs(args, result, batch, found)
        batch.log.add(self.contract.name, checked=checked, unknown=found.unknown)
        return result

    def _applies(self, found: _Remembered, batch: CpBatch[Layout]) -> bool:
        """Whether a remembered call agrees with the dims of this batch; if so they are bound by it."""
        dims = batch.dims
        if id(found) in dims.applied:
            return True
        if not dims.agrees(found.bindings):
            return False
        self._bind(found, batch)
        return True

    @staticmethod
    def _bind(found: _Remembered, batch: CpBatch[Layout]) -> None:
        for name, value, by in found.bindings:
            batch.dims.bind(name, value, by)
        batch.dims.applied.add(id(found))

    def _check_inputs(self, args: tuple[object, ...], batch: CpBatch[Layout]) -> _Remembered:
        """Check all that metadata and brands say of the arguments."""
        contract, passed = self.contract, Passed({}, {})
        values = dict(zip(contract.names, args, strict=True))
        check_params(contract, contract.params, values, batch, passed, is_output=False)
        passed.checked += check_invariants(contract, contract.requires, values, batch, reads_data=False, is_output=False)
        kinds = tuple(
            output_kind(record.spec, passed.variables, batch.layout.name, f"{contract.name}.{record.name}")
            for record in contract.returns
            if record.spec is not None
        )
        found = _Remembered(passed, kinds)
        self._bind(found, batch)
        return found

    def _remember(self, key: object, found: _Remembered) -> None:
        """Remember a call that passed; the oldest goes when there are too many."""
        while len(self.memory) >= MEMORY_LIMIT:
            self.memory.pop(next(iter(self.memory)), None)
        self.memory[key] = found

    def _check_values(self, args: tuple[object, ...], batch: CpBatch[Layout]) -> int:
        """Check the invariants that read device data before the call."""
        values = dict(zip(self.contract.names, args, strict=True))
        requires = self.contract.requires
        return check_invariants(self.contract, requires, values, batch, reads_data=True, is_output=False)

    def _agree(self, args: tuple[object, ...], batch: CpBatch[Layout]) -> None:
        """Compare this call with the same call on the other ranks, before the payload moves."""
        comm = args[self.comm_at or 0]
        if isinstance(comm, Comm):
            tensor = next(arg for arg in args if isinstance(arg, Tensor))
            width = f"{str(tensor.dtype).removeprefix('torch.')}[rows, {', '.join(map(str, tensor.shape[1:]))}]"
            comm.agree(f"{self.contract.name} layer={batch.layer} {width} {batch.fingerprint}")

    def _tell_others(self, args: tuple[object, ...], error: ContractError) -> None:
        """Let the other ranks of a collective know that this rank will not come."""
        comm = args[self.comm_at] if self.comm_at is not None and self.comm_at < len(args) else None
        if isinstance(comm, Comm) and not error.code.startswith("DSA5"):
            raise comm.fail(str(error)) from error

    def _check_outputs(self, args: tuple[object, ...], result: object, batch: CpBatch[Layout], found: _Remembered) -> int:
        """Check the return values, then brand them."""
        returns = self.contract.returns
        results = result if isinstance(result, tuple) else () if not returns else (result,)
        key, checked = output_signature(results), 0
        reads_values = self.reads_values or is_reading_values()
        if key not in found.outputs or reads_values:
            checked = self._check_results(args, results, batch, found, reads_values=reads_values)
            found.outputs.add(key)
        for tensor, kind in zip(results, found.kinds, strict=False):
            if isinstance(tensor, Tensor):
                set_brand(tensor, Brand(kind, batch.token, batch.layer))
        return checked

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
        shared = [name for name, arg in zip(contract.names, args, strict=True) for r in results if arg is r]
        if shared and isinstance(results[0], Tensor):
            raise StageInputError(
                f"{contract.name}: returned its argument {shared[0]} itself",
                code="DSA123",
                facts=[("got", describe_tensor(results[0])), ("try", "return a view of it: a brand is on an object")],
            )
        passed = Passed(dict(found.passed.variables), dict(found.passed.dims))
        outputs = dict(zip((record.name for record in contract.returns), results, strict=True))
        check_params(contract, contract.returns, outputs, batch, passed, is_output=True)
        values = dict(zip(contract.names, args, strict=True)) | outputs
        passed.checked += check_invariants(contract, contract.ensures, values, batch, reads_data=False, is_output=True)
        if reads_values:
            passed.checked += check_invariants(contract, contract.ensures, values, batch, reads_data=True, is_output=True)
        return passed.checked
