"""What cannot work, found at start-up: each check is named, and its error says what is missing and what would do."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dsa_contracts.core.errors import ArgumentError
from dsa_contracts.core.extensions import Registry
from dsa_contracts.dsa.codes import PlanError
from dsa_cp.planner.backends import Capability, Cited, Phase, Rules
from dsa_cp.planner.options import PlanOptions


@dataclass(frozen=True)
class PlanQuestion:
    """Options with the capabilities that they name.

    Attributes:
        options: the options.
        known: all capabilities, by name.
    """

    options: PlanOptions
    known: Mapping[str, Capability]

    @property
    def users(self) -> tuple[tuple[Capability, Phase], ...]:
        """The two backends, each with its phase: both must be able to run, whichever this plan is for."""
        return (self.known[self.options.prefill_backend], "prefill"), (self.known[self.options.decode_backend], "decode")

    @property
    def running(self) -> Capability:
        """The backend of the phase that the plan is for."""
        return self.known[self.options.backend]

    def others(self, can: Callable[[Capability], bool]) -> str:
        """Return the names of the backends that can do something, for the last line of an error."""
        return ", ".join(name for name, capability in self.known.items() if can(capability)) or "none that is known"


Refusal = Callable[[PlanQuestion], PlanError | None]


def ask(options: PlanOptions, known: Mapping[str, Capability]) -> PlanQuestion:
    """Return the question; raises ArgumentError DSA602 where a backend is not known."""
    for flag, name in (("prefill", options.prefill_backend), ("decode", options.decode_backend)):
        if name not in known:
            names = known.known() if isinstance(known, Registry) else known
            raise ArgumentError(f"{flag} backend {name!r} is not known; known are {', '.join(names)}")
    return PlanQuestion(options, known)


def row_format_is_read(question: PlanQuestion) -> PlanError | None:
    """Both backends read the pool's rows, each in its phase."""
    row_format = question.options.kv_format
    for capability, phase in question.users:
        if capability.reading(row_format, phase) is not None:
            continue
        reads = [way.row_format for way in capability.reads if phase in way.phases]
        able = question.others(lambda other, phase=phase: other.reading(row_format, phase) is not None)  # type: ignore[misc]
        return PlanError(
            f"{capability.name} does not read {row_format} rows in {phase}",
            facts=[
                ("expected", ", ".join(reads) or "nothing in this phase"),
                ("source", capability.kernel),
                ("try", f"backends that read them: {able}"),
            ],
        )
    return None


def device_runs_it(question: PlanQuestion) -> PlanError | None:
    """Both backends run on the device."""
    device = question.options.device
    for capability, phase in question.users:
        devices = capability.devices
        if device is not None and devices.value and device not in devices.value:
            able = question.others(lambda other: not other.devices.value or device in other.devices.value)
            return PlanError(
                f"{capability.name}, the {phase} backend, does not run on {device}",
                facts=[
                    ("expected", ", ".join(devices.value)),
                    ("source", devices.source),
                    ("try", f"backends that do: {able}"),
                ],
            )
    return None


def device_is_shared(question: PlanQuestion) -> PlanError | None:
    """Some device runs both backends, since they share a pool."""
    (prefill, _), (decode, _) = question.users
    ours, theirs = prefill.devices, decode.devices
    if not ours.value or not theirs.value or set(ours.value) & set(theirs.value):
        return None
    able = question.others(lambda other: not other.devices.value or bool(set(ours.value) & set(other.devices.value)))
    return PlanError(
        f"no device runs both {prefill.name} and {decode.name}",
        facts=[
            ("expected", f"{prefill.name}: {', '.join(ours.value)}; {decode.name}: {', '.join(theirs.value)}"),
            ("source", f"{ours.source}; {theirs.source}"),
            ("try", f"a decode backend beside {prefill.name}: {able}"),
        ],
    )


def counts_are_legal(question: PlanQuestion) -> PlanError | None:
    """Heads, top-k width, page size and block-table width are legal for each backend by its own rules, and no other's."""
    options = question.options
    for capability, _ in question.users:
        checks: tuple[tuple[str, int | None, Cited[Rules]], ...] = (
            ("num_heads", options.num_heads, capability.head_counts),
            ("index_topk", options.index_topk, capability.topk_widths),
            ("page_size", options.page_size, capability.page_sizes),
            ("block_table_width", options.block_table_width, capability.block_table_widths),
        )
        for name, count, rules in checks:
            if count is None or not rules.value or any(rule.admits(count) for rule in rules.value):
                continue
            legal = ", or ".join(rule.describe() for rule in rules.value)
            return PlanError(
                f"{capability.name} does not take {name} {count}",
                facts=[
                    ("expected", legal),
                    ("source", rules.source),
                    ("try", f"a legal {name}, padded where the engine can, or another backend"),
                ],
            )
    return None


def layout_is_taken(question: PlanQuestion) -> PlanError | None:
    """The prefill backend takes rows in the layout's order."""
    options, (capability, _) = question.options, question.users[0]
    layouts, name = capability.layouts, options.layout.partition("(")[0]
    if options.ranks == 1 or not layouts.value or name in layouts.value:
        return None
    facts = [("expected", ", ".join(layouts.value)), ("source", layouts.source)]
    return PlanError(f"{capability.name} does not take layout {name}", facts=[*facts, ("try", "a layout of those")])


def context_parallel_is_declared(question: PlanQuestion) -> PlanError | None:
    """A backend whose queries are a rank's share of the batch says that it works in local rows."""
    options, (capability, _) = question.options, question.users[0]
    declared = capability.context_parallel
    if options.ranks == 1 or options.phase in declared.value:
        return None
    able = question.others(lambda other: options.phase in other.context_parallel.value)
    return PlanError(
        f"{capability.name} does not declare context parallelism in {options.phase}",
        facts=[
            ("because", "its query offsets may run over the whole batch, its buffers hold this rank's rows"),
            ("source", declared.source),
            ("try", f"cp_size 1, or a backend that declares it: {able}"),
        ],
    )


def pool_holds_the_keys(question: PlanQuestion) -> PlanError | None:
    """With a sharded pool no prefix is read, and shards can be merged where they are read."""
    options = question.options
    if options.pool == "replicated" or options.cp_size == 1:
        return None
    if options.phase == "decode":
        return PlanError(
            "no stage merges attention over the shards of a sharded pool",
            facts=[("because", "decode reads keys of all ranks, this pool holds one rank's"), ("try", "--pool replicated")],
        )
    if options.prefix:
        return PlanError(
            "a sharded pool does not hold the prefix rows of the other ranks",
            facts=[
                ("because", "prefill attends to the prefix through the pool; only the batch's own rows are gathered"),
                ("try", "--pool replicated, or --no-prefix where every request is prefilled at once"),
            ],
        )
    capability, _ = question.users[1]
    if capability.lse.value.endswith("-inf for empty rows"):
        return None
    able = question.others(lambda other: other.lse.value.endswith("-inf for empty rows"))
    return PlanError(
        f"{capability.name} cannot decode from shards: {_lse_fault(capability)}",
        facts=[
            ("expected", "an LSE, -inf for a row without keys on this rank: a finite one counts as attention in the merge"),
            ("source", capability.lse.source),
            ("try", f"--pool replicated, or a decode backend that returns it: {able}"),
        ],
    )


def _lse_fault(capability: Capability) -> str:
    """Return what is wrong with a backend's LSE."""
    return "its LSE is not returned" if capability.lse.value == "not returned" else "its LSE of an empty row is not -inf"


CHECKS: dict[str, Refusal] = {
    "row format": row_format_is_read,
    "device": device_runs_it,
    "shared device": device_is_shared,
    "counts": counts_are_legal,
    "layout": layout_is_taken,
    "context parallelism": context_parallel_is_declared,
    "pool": pool_holds_the_keys,
}


def first_refusal(question: PlanQuestion) -> tuple[str, PlanError] | None:
    """Return the name and the error of the first check that fails, None where all pass."""
    for name, check in CHECKS.items():
        error = check(question)
        if error is not None:
            return name, error
    return None


def refuse_what_cannot_work(question: PlanQuestion) -> None:
    """Raise PlanError DSA401 for the first check that fails."""
    refusal = first_refusal(question)
    if refusal is not None:
        raise refusal[1]
