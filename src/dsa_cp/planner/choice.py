"""The candidates for one question: every legal placement into the pool's row format, its cost, and why it cannot be."""

from dataclasses import dataclass

from dsa_contracts.dsa.codes import PlanError
from dsa_cp.planner.backends import Capability, Rotation
from dsa_cp.planner.options import PlanOptions
from dsa_cp.planner.refusals import PlanQuestion
from dsa_cp.planner.replay import replay
from dsa_cp.planner.search import Path, is_view, legal_paths


@dataclass(frozen=True, order=True)
class Cost:
    """What a placement costs a layer, dearest first: compared in the order of the fields.

    Attributes:
        wire_bytes: bytes of a token's row in the collective; 0 where one rank has all rows.
        all_row_passes: stages that write the rows of all ranks to new memory or to the pool, on every rank.
        own_row_passes: stages that write this rank's rows to new memory.
    """

    wire_bytes: int
    all_row_passes: int
    own_row_passes: int

    def describe(self) -> str:
        """Return the cost in words."""
        all_rows, own = _passes(self.all_row_passes), _passes(self.own_row_passes)
        return f"{self.wire_bytes} bytes a token on the wire, {all_rows} over all rows, {own} over this rank's"


def _passes(count: int) -> str:
    return f"{count} pass" if count == 1 else f"{count} passes"


def effects(path: Path, ranks: int) -> tuple[str, ...]:
    """Return what each stage of a path does to K: `wire`, `view`, `all rows`, `own rows`, or `queries`."""
    found = []
    for move, before in zip(path.moves, path.keys, strict=False):
        if not move.moves_keys:
            found.append("queries")
        elif move.contract.comm_param is not None:
            found.append("wire" if ranks > 1 else "view")
        elif is_view(move):
            found.append("view")
        else:
            found.append("own rows" if before.rows == "local" else "all rows")
    return tuple(found)


def cost_of(path: Path, options: PlanOptions) -> Cost:
    """Return what a path costs for a group.

    A stage that gathers into the pool saves the pass of the write where ranks reach each other's memory; over a collective
    it still lands the rows before it writes them.
    """
    kinds = effects(path, options.ranks)
    wire = sum(before.bytes_per_token for kind, before in zip(kinds, path.keys, strict=False) if kind == "wire")
    landings = options.comm == "collective" and path.gathers_into_pool
    return Cost(wire, kinds.count("all rows") + landings, kinds.count("own rows"))


@dataclass(frozen=True)
class Candidate:
    """A legal placement for a question.

    Attributes:
        path: the placement.
        cost: what it costs.
        problem: why the backend cannot run it, empty where it can.
    """

    path: Path
    cost: Cost
    problem: str


def candidates(question: PlanQuestion) -> tuple[Candidate, ...]:
    """Return every legal placement into the pool's row format: those that can run first, cheapest first, then by name."""
    options = question.options
    paths = [path for path in legal_paths(type(options.made_layout)) if path.row_format == options.kv_format]
    made = [Candidate(path, cost_of(path, options), problem_of(path, question)) for path in paths]
    return tuple(sorted(made, key=lambda candidate: (bool(candidate.problem), candidate.cost, candidate.path.name)))


def problem_of(path: Path, question: PlanQuestion) -> str:
    """Return why the running backend cannot take a path, an empty text where it can."""
    options, capability = question.options, question.running
    reading = capability.reading(options.kv_format, options.phase)
    if path.row_format != options.kv_format or reading is None:
        return f"it leaves {path.row_format} rows in the pool, not {options.kv_format}"
    if path.query_dtype not in reading.query_dtypes:
        taken = " or ".join(reading.query_dtypes)
        return f"it makes {path.query_dtype} queries, {capability.name} takes {taken} with {options.kv_format} rows"
    rotation = capability.rotation(options.kv_format)
    return "" if rotation is None else _rotation_problem(path, capability, rotation, options)


def _rotation_problem(path: Path, capability: Capability, rotation: Rotation, options: PlanOptions) -> str:
    """Return what is wrong with a path for a backend that rotates K itself, with q and this rank's positions."""
    if rotation.fused_with == "cache write":
        if options.ranks == 1 or rotation.can_bypass:
            return ""
        return f"{capability.name} rotates K in its cache write: nothing can gather between the two, or after them"
    at = next(at for at, (old, new) in enumerate(zip(path.keys, path.keys[1:], strict=False)) if old.rope != new.rope)
    if path.keys[at].rows != "local":
        return f"{capability.name} rotates K with q: with this rank's positions, so K must be this rank's rows there"
    if not path.keys[at + 1].is_quantized and not rotation.can_bypass:
        return f"{capability.name} rotates and quantises in one call, which {path.moves[at].contract.name} is not"
    return ""


def choose(question: PlanQuestion) -> Candidate:
    """Return the cheapest placement that the backend can run; raises PlanError DSA401 where there is none."""
    found = candidates(question)
    if found and not found[0].problem:
        return found[0]
    options, capability = question.options, question.running
    facts = [("expected", f"a placement into {options.kv_format} rows that {capability.name} can run")]
    facts += [("rejected", f"{candidate.path.name}: {candidate.problem}") for candidate in found]
    able = question.others(lambda other: _has_placement(question, other))
    raise PlanError(
        f"no placement fits {capability.name} with {options.kv_format} rows and cp_size {options.cp_size}",
        facts=[*facts, ("try", f"backends with one: {able}")],
    )


def _has_placement(question: PlanQuestion, other: Capability) -> bool:
    """Whether another backend, in the place of the running one, has a placement."""
    name = f"{question.options.phase}_backend"
    asked = PlanQuestion(question.options.model_copy(update={name: other.name}), question.known)
    return any(not candidate.problem for candidate in candidates(asked))


def misfit_with_early_gather(path: Path, layout: type) -> tuple[str, str] | None:
    """Return name and fault of a path's stages behind a gather of raw K, None where that order is legal too.

    The stages that gather raw K are those of a legal placement that does so; it is the order before
    sgl-project/sglang#29161.
    """
    early = next((_raw_gather(other) for other in legal_paths(layout) if _raw_gather(other)), ())
    later = [move.contract for move in path.moves if move.moves_keys and move.contract.comm_param is None]
    stages = (*early, *(contract.name for contract in later if contract.name not in early))
    try:
        replay(stages, layout)
    except PlanError as error:
        return f"gather before {path.name.replace('_gather', '')}", error.headline
    return None


def _raw_gather(path: Path) -> tuple[str, ...]:
    """Return the stages of a path up to where K is halves of all ranks, never rotated; none where it gathers later."""
    for at, keys in enumerate(path.keys):
        if keys.rope == "rotated":
            return ()
        if keys.rows == "global" and keys.dtype.endswith("halves"):
            return path.stages[:at]
    return ()
