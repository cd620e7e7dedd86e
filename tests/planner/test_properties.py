"""For any options: a plan is stable, fits, and goes through JSON; or there is an error that says what would do."""

from hypothesis import given, settings
from hypothesis import strategies as st

from dsa_contracts.dsa.codes import PlanError
from dsa_cp.planner import Plan, PlanOptions
from dsa_cp.planner.backends import CAPABILITIES
from dsa_cp.planner.beside_upstream import plan_or_error
from dsa_cp.planner.choice import candidates
from dsa_cp.planner.plan_files import plan_from_json
from dsa_cp.planner.refusals import ask
from dsa_cp.planner.replay import replay

BACKENDS = st.sampled_from(sorted(CAPABILITIES))
OPTIONS = st.builds(
    PlanOptions,
    prefill_backend=BACKENDS,
    decode_backend=BACKENDS,
    layout=st.sampled_from(["zigzag", "interleave", "interleave(block=64)", "vllm_zigzag", "vllm_replicated"]),
    kv_format=st.sampled_from(["bf16", "fp8", "fp8_656"]),
    cp_size=st.integers(1, 64),
    prefix=st.booleans(),
    pool=st.sampled_from(["replicated", "sharded"]),
    phase=st.sampled_from(["prefill", "decode"]),
    comm=st.sampled_from(["collective", "symmetric"]),
    device=st.sampled_from([None, "9.0", "10.0", "gfx950"]),
    num_heads=st.sampled_from([None, 1, 16, 64, 96, 128]),
    index_topk=st.sampled_from([None, 512, 2048, 2051]),
    page_size=st.sampled_from([None, 1, 32, 64]),
)


@settings(max_examples=150)
@given(OPTIONS)
def test_a_plan_is_stable_fits_and_goes_through_json(options: PlanOptions) -> None:
    made = plan_or_error(options)
    again = plan_or_error(options)
    if isinstance(made, PlanError):
        assert isinstance(again, PlanError)
        assert str(again) == str(made)
        assert dict(made.facts).get("try")
        return
    assert again == made
    assert plan_from_json(made.model_dump_json()) == made
    path = replay(made.stages, type(options.made_layout))
    assert path.keys[-1].is_in_pool
    assert path.keys[-1].row_format == options.kv_format


@settings(max_examples=100)
@given(OPTIONS)
def test_no_other_placement_that_can_run_costs_less(options: PlanOptions) -> None:
    made = plan_or_error(options)
    if isinstance(made, Plan):
        found = candidates(ask(options, CAPABILITIES))
        best = min((candidate for candidate in found if not candidate.problem), key=lambda c: (c.cost, c.path.name))
        assert best.path.stages == made.stages
        assert len(made.rejected) >= len(found) - 1


@settings(max_examples=100)
@given(OPTIONS)
def test_where_the_backend_rotates_keys_itself_they_are_this_ranks(options: PlanOptions) -> None:
    made = plan_or_error(options)
    if isinstance(made, Plan) and made.decided("rotation").value == "backend":
        rotated = next(at for at, step in enumerate(made.steps) if step.rope == "rotated")
        assert made.steps[rotated - 1].rows == "local"
