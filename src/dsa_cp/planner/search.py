"""All legal ways of K from the projections into the pool, and of q to `attend`: a search over the stages' contracts.

What bounds the search is written down as rules; each is a reason why a sequence that the types allow is no placement.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import dsa_contracts.stages as stubs
from dsa_contracts import contract_of
from dsa_cp.planner.keys import KeyState, key_state, placement_name
from dsa_cp.planner.moves import Holdings, Move, all_moves, moves, start

RULES: dict[str, str] = {
    "no state twice": "a stage that leads K back to rows, order, RoPE state and format that it had before undoes work",
    "no idle stage": "a stage is left out where the rest is legal without it, as a restored order that nobody asks for",
    "queries after keys": "stages of q alone commute with those of K; they are listed after them",
    "views before copies": "of sequences of the same stages the one with fewer copies is meant",
}


@dataclass(frozen=True)
class Path:
    """One legal sequence of stages.

    Attributes:
        moves: the stages as applied.
        keys: what K is before the first of them, and after each.
        end: what is held at the end: the pool and the merged queries.
    """

    moves: tuple[Move, ...]
    keys: tuple[KeyState, ...]
    end: Holdings

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages by name."""
        return tuple(move.contract.name for move in self.moves)

    @property
    def name(self) -> str:
        """The written name of the placement, from what its stages do to K."""
        return placement_name(self.moves, self.keys)

    @property
    def row_format(self) -> str:
        """The row format of the pool."""
        return self.keys[-1].row_format

    @property
    def query_dtype(self) -> str:
        """The dtype of the merged queries: `bf16` or `e4m3`."""
        query = next(held for held in self.end if not held.is_key)
        return str(getattr(query.spec.dtype, "__name__", "")).lower()

    @property
    def gathers_into_pool(self) -> bool:
        """Whether the stage that gathers K also writes it into the pool."""
        pairs = zip(self.moves, self.keys[1:], strict=True)
        return any(move.contract.comm_param is not None and keys.is_in_pool for move, keys in pairs if move.moves_keys)

    @property
    def num_copies(self) -> int:
        """Stages that write K rows to new memory."""
        return sum(move.moves_keys and not is_view(move) for move in self.moves)


def is_view(move: Move) -> bool:
    """Whether a stage hands on views of its rows: its results keep a row stride that is not their own."""
    return any(held.spec.strides is move.strides and is_row_stride(move.strides) for held in move.made)


def is_row_stride(strides: object) -> bool:
    """Whether strides are those of columns of wider rows."""
    return getattr(strides, "row_dim", None) is not None


def can_attend(state: Holdings, layout: type) -> bool:
    """Whether `attend` takes what is held."""
    return next(iter(moves(contract_of(stubs.attend), state, layout)), None) is not None


@cache
def legal_paths(layout: type) -> tuple[Path, ...]:
    """Return every legal placement in a layout, by name."""
    found: dict[tuple[str, ...], Path] = {}
    for path in _walk(start(layout), (), (key_state(start(layout)),), layout):
        known = found.get(path.stages)
        if known is None or path.num_copies < known.num_copies:
            found[path.stages] = path
    kept = [path for path in found.values() if not _has_idle_stage(path.stages, found)]
    return tuple(sorted(kept, key=lambda path: (path.row_format, path.name, path.stages)))


def _walk(state: Holdings, taken: tuple[Move, ...], keys: tuple[KeyState, ...], layout: type) -> Iterator[Path]:
    """Yield the paths that continue from a state; rules 1 and 3 are applied on the way."""
    if can_attend(state, layout):
        yield Path(taken, keys, state)
        return
    for move in all_moves(state, layout):
        after = move.after(state)
        keys_after = key_state(after)
        if move.moves_keys and keys_after.is_at_least_as(keys):
            continue
        if not move.moves_keys and not keys[-1].is_in_pool:
            continue
        yield from _walk(after, (*taken, move), (*keys, keys_after), layout)


def _has_idle_stage(stages: tuple[str, ...], found: dict[tuple[str, ...], Path]) -> bool:
    """Whether a sequence is legal without one of its stages."""
    return any(stages[:at] + stages[at + 1 :] in found for at in range(len(stages)))
