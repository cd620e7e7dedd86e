"""Who rotates K and where it is gathered then follow from the capability of the backend that runs, and from no name (B03)."""

from dataclasses import replace

import pytest

from dsa_cp.planner.backends import CAPABILITIES, Capability, Rotation
from tests.support.plans import plan, refusal, with_backend

FOUND = "as found in this test"


def rotating(fused_with: str, *, can_bypass: bool) -> dict[str, Capability]:
    """Return the capabilities with a backend that rotates bf16 rows itself."""
    way = Rotation("bf16", "cache write" if fused_with == "cache write" else "quantisation", can_bypass, FOUND)
    return with_backend(replace(CAPABILITIES["aiter"], name="rotating", rotates=(way,)))


def test_b03_the_rule_is_the_capability_and_not_a_name() -> None:
    own = with_backend(replace(CAPABILITIES["trtllm"], name="another"))
    assert plan(own, backend="another", cp_size=8).stages == plan(cp_size=8).stages
    assert plan(own, backend="another", cp_size=8).decided("rotation").value == "backend"


def test_b03_keys_are_gathered_behind_a_fused_cache_write_that_is_bypassed() -> None:
    made = plan(backend="aiter", kv_format="bf16", cp_size=8, device="gfx950")
    assert made.placement == "rope_gather"
    assert made.decided("rotation").value == "path"
    assert made.decided("rotation").reason == (
        "the fused cache write of aiter is bypassed: it leaves K in the pool before it is gathered"
    )
    alone = plan(backend="aiter", kv_format="bf16", cp_size=1, device="gfx950")
    assert alone.decided("rotation").value == "backend"


def test_b03_a_fused_cache_write_that_cannot_be_bypassed_has_no_plan_under_cp() -> None:
    known = rotating("cache write", can_bypass=False)
    lines = refusal(known, backend="rotating", kv_format="bf16").splitlines()
    assert lines[0] == "PlanError DSA401: no placement fits rotating with bf16 rows and cp_size 4"
    assert (
        "  rejected  rope_gather: rotating rotates K in its cache write: nothing can gather between the two, or after them"
        in lines
    )
    assert lines[-1].startswith("  try       backends with one: trtllm, flashmla_sparse, ")
    assert plan(known, backend="rotating", kv_format="bf16", cp_size=1).placement == "rope_gather"


def test_b03_a_backend_that_rotates_with_q_never_gets_gathered_keys() -> None:
    known = rotating("quantisation", can_bypass=True)
    lost = {item.placement: item.reason for item in plan(known, backend="rotating", kv_format="bf16").rejected}
    assert lost["gather_rope"] == (
        "rotating rotates K with q: with this rank's positions, so K must be this rank's rows there"
    )


@pytest.mark.parametrize(
    ("prefill", "decode", "phase", "rotation"),
    [
        ("trtllm", "tilelang", "prefill", "backend"),
        ("trtllm", "tilelang", "decode", "path"),
        ("tilelang", "trtllm", "prefill", "path"),
        ("tilelang", "trtllm", "decode", "backend"),
    ],
)
def test_the_backend_of_the_phase_that_runs_decides_who_rotates(prefill: str, decode: str, phase: str, rotation: str) -> None:
    assert plan(prefill_backend=prefill, decode_backend=decode, phase=phase).decided("rotation").value == rotation
