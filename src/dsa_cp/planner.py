"""Where the gather goes: from what the backend can do and what the pool holds."""

from dataclasses import dataclass

from dsa_contracts.capabilities import CAPABILITIES, Capability
from dsa_contracts.errors import ArgumentError, PlanError


@dataclass(frozen=True)
class Plan:
    """A decision and its reason.

    Attributes:
        name: written name, as batches carry it.
        backend: the attention backend that it was made for.
        row_format: the KV row format.
        placement: name of a function in `dsa_cp.placements`.
        gather_after: the stage behind which the gather stands.
        reason: why there.
    """

    name: str
    backend: str
    row_format: str
    placement: str
    gather_after: str
    reason: str


def make_plan(backend: str, row_format: str) -> Plan:
    """Return the plan for a backend and a row format.

    Raises:
        ArgumentError: DSA602, the backend is not known.
        PlanError: DSA401, the backend does not read rows of that format.
    """
    if backend not in CAPABILITIES:
        raise ArgumentError(f"backend {backend!r} is not known; known are {', '.join(CAPABILITIES)}")
    capability = CAPABILITIES[backend]
    if row_format not in capability.row_formats:
        raise PlanError(
            f"{backend} does not read {row_format} rows",
            facts=[("expected", ", ".join(sorted(capability.row_formats))), ("source", capability.source)],
        )
    placement, gather_after, reason = _place(capability, row_format)
    return Plan(f"{backend}/{row_format}/{placement}", backend, row_format, placement, gather_after, reason)


def _place(capability: Capability, row_format: str) -> tuple[str, str, str]:
    """Return placement, the stage before the gather, and the reason."""
    name = capability.name
    if row_format in capability.ropes_inside:
        reason = f"{name} rotates inside for {row_format}: K is raw until then, and positions are this rank's"
        return "rope_quantize_gather", "rope_quantize", reason
    if row_format == "fp8_656":
        return "rope_quantize_rows_gather", "quantize_rows", "656 bytes a row on the wire instead of 1152"
    if row_format == "bf16":
        return "rope_gather", "apply_rope", f"{name} takes rotated bf16 rows: RoPE on local rows, then the gather"
    raise PlanError(
        f"{name} reads {row_format} rows but does not make them",
        facts=[("missing", f"ropes_inside for {row_format}"), ("source", capability.source)],
    )
