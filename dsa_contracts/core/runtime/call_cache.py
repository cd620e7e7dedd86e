"""Calls of one stage that passed, by their signature, bounded in size."""

import contextlib
import threading

from dsa_contracts.core.bound_dims import Bindings, BoundDims
from dsa_contracts.core.brands import Kind
from dsa_contracts.core.runtime.check import Passed
from dsa_contracts.core.runtime.looks import IsAgain, Leave, look_of_call, never
from dsa_contracts.core.runtime.signatures import Places
from dsa_contracts.core.scope import Scope

CALLS_LIMIT = 1024
"""Signatures that one stage remembers; past it the oldest is forgotten."""

OUTPUT_LIMIT = 16
"""Signatures of results that one remembered call keeps."""

LATEST_LIMIT = 4
"""Calls of a stage that one scope recognises by their looks: a stage may be called for two kinds of rows in turn."""


class Remembered:
    """A call that passed.

    Attributes:
        passed: what its arguments have bound.
        bindings: dims that all stages of a scope share, as the arguments have them.
        outputs: the same of results that passed, by their signature.
        kinds: which of the results are of which kind.
        unknown: arguments that carried no brand.
        facts: what ranks of a collective must agree on, in words; empty for other stages.
        is_again: recognises calls that look like the last one.
        leave: recognises results that look like the last ones, and brands them.
    """

    __slots__ = ("bindings", "facts", "is_again", "kinds", "leave", "outputs", "passed", "unknown")

    def __init__(self, passed: Passed, kinds: tuple[tuple[int, Kind], ...], facts: str = "") -> None:
        """Keep what the arguments have bound; no results have passed yet."""
        self.passed = passed
        self.bindings = passed.bindings
        self.kinds = kinds
        self.facts = facts
        self.unknown = passed.unknown
        self.outputs: dict[tuple[object, ...], Bindings] = {}
        self.is_again: IsAgain = never
        self.leave: Leave = never

    def has_returned(self, seen: tuple[object, ...], dims: BoundDims) -> bool:
        """Whether results with this signature have passed, and agree with what is bound; those that cannot be hashed: no."""
        try:
            bindings = self.outputs.get(seen)
        except TypeError:
            return False
        if bindings is None or not dims.agrees(bindings):
            return False
        dims.bind_all(self.bindings)
        dims.bind_all(bindings)
        return True

    def add_results(self, seen: tuple[object, ...], bindings: Bindings, dims: BoundDims) -> None:
        """Remember the signature of results that passed, and the dims that they have; bind these, the arguments' first."""
        dims.bind_all(self.bindings)
        dims.bind_all(bindings)
        if len(self.outputs) >= OUTPUT_LIMIT:
            self.outputs.clear()
        with contextlib.suppress(TypeError):
            self.outputs[seen] = bindings


class CallCache:
    """Calls of one stage that passed. Ranks in threads share it.

    Attributes:
        calls: by their signature.
    """

    def __init__(self, *, is_watched: bool = False) -> None:
        """Start with nothing; watched calls are those that are made elsewhere, see `observe`."""
        self._is_watched = is_watched
        self.calls: dict[tuple[object, ...], Remembered] = {}
        self._lock = threading.Lock()

    def recall(self, key: tuple[object, ...], scope: Scope) -> Remembered | None:
        """Return the call with this signature that passed, None where there is none or it contradicts a bound dim."""
        try:
            found = self.calls.get(key)
        except TypeError:
            return None  # an argument that cannot be hashed: such calls are checked each time
        if found is None or found in scope.dims.applied or scope.dims.agrees(found.bindings):
            return found
        return None

    def expect_again(self, key: tuple[object, ...], args: tuple[object, ...], scope: Scope, places: Places) -> None:
        """Recognise the call with this signature by its looks for the rest of a scope; only the latest few are."""
        found = self.recall(key, scope)
        if found is None:
            return
        if not found.is_again(args, scope):
            found.is_again = look_of_call(args, scope, places, is_watched=self._is_watched)
        others = [one for one in scope.dims.latest.get(self, ()) if one is not found]
        scope.dims.latest[self] = (found, *others[: LATEST_LIMIT - 1])

    def keep(self, key: tuple[object, ...], found: Remembered, scope: Scope) -> None:
        """Remember a call that passed and has bound its dims; the oldest goes when there are too many."""
        scope.dims.applied.add(found)
        with contextlib.suppress(TypeError), self._lock:
            self.calls[key] = found
            while len(self.calls) > CALLS_LIMIT:
                del self.calls[next(iter(self.calls))]
