"""The memory of one stage: calls that passed, by their signature, bounded in size."""

import contextlib
import threading

from dsa_contracts.batch import CpBatch
from dsa_contracts.brands import Kind
from dsa_contracts.checks import Passed
from dsa_contracts.layout import Layout
from dsa_contracts.repeats import IsAgain, Leave, look_of_call, never
from dsa_contracts.signatures import Places

MEMORY_LIMIT = 1024
"""Signatures that one stage remembers; past it the oldest is forgotten."""

OUTPUT_LIMIT = 16
"""Signatures of results that one remembered call keeps."""

LATEST_LIMIT = 4
"""Calls of a stage that one batch recognises by their looks: writes of KV and of index rows are two."""


class Remembered:
    """A call that passed.

    Attributes:
        passed: what its arguments have bound.
        bindings: dims that all stages of a batch share, as the arguments and results have them.
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
        self.outputs: set[tuple[object, ...]] = set()
        self.is_again: IsAgain = never
        self.leave: Leave = never

    def has_returned(self, seen: tuple[object, ...]) -> bool:
        """Whether results with this signature have passed; those that cannot be hashed are checked each time."""
        try:
            return seen in self.outputs
        except TypeError:
            return False

    def add_results(self, seen: tuple[object, ...], bindings: tuple[tuple[str, int, str], ...]) -> None:
        """Remember the signature of results that passed, and the dims that they have."""
        self.bindings += tuple(binding for binding in bindings if binding not in self.bindings)
        if len(self.outputs) >= OUTPUT_LIMIT:
            self.outputs.clear()
        with contextlib.suppress(TypeError):
            self.outputs.add(seen)


class Memory:
    """Calls of one stage that passed. Ranks in threads share it.

    Attributes:
        calls: by their signature.
    """

    def __init__(self) -> None:
        """Start with nothing."""
        self.calls: dict[tuple[object, ...], Remembered] = {}
        self._lock = threading.Lock()

    def recall(self, key: tuple[object, ...], batch: CpBatch[Layout]) -> Remembered | None:
        """Return the call with this signature that passed, None where there is none or it contradicts a bound dim."""
        try:
            found = self.calls.get(key)
        except TypeError:
            return None  # an argument that cannot be hashed: such calls are checked each time
        if found is None or found in batch.dims.applied or batch.dims.agrees(found.bindings):
            return found
        return None

    def expect_again(self, key: tuple[object, ...], args: tuple[object, ...], batch: CpBatch[Layout], places: Places) -> None:
        """Recognise the call with this signature by its looks for the rest of a batch; only the latest few are."""
        found = self.recall(key, batch)
        if found is None:
            return
        if not found.is_again(args, batch):
            found.is_again = look_of_call(args, batch, places)
        others = [one for one in batch.dims.latest.get(self, ()) if one is not found]
        batch.dims.latest[self] = (found, *others[: LATEST_LIMIT - 1])

    def keep(self, key: tuple[object, ...], found: Remembered, batch: CpBatch[Layout]) -> None:
        """Bind the dims of a call that passed, and remember it; the oldest goes when there are too many."""
        for name, value, by in found.bindings:
            batch.dims.bind(name, value, by)
        batch.dims.applied.add(found)
        with contextlib.suppress(TypeError), self._lock:
            self.calls[key] = found
            while len(self.calls) > MEMORY_LIMIT:
                del self.calls[next(iter(self.calls))]
