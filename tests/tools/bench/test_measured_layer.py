"""The layer that is timed is the layer that runs, but for the choice of keys, which is given."""

from functools import partial

import torch

from dsa_contracts import Comm
from dsa_cp.comm import run_ranks
from dsa_cp.layer.kernel_sets import TorchKernels, observed
from dsa_cp.layer.models import MODELS
from dsa_cp.tools.bench.layers import measured_layer
from dsa_cp.tools.prove.stage_steps import layer_steps

PLACEMENT = "rope_quantize_gather_write"


def timed_calls(comm: Comm, rows: int) -> tuple[list[str], list[bool], torch.Tensor]:
    """Run the layer of the bench twice on one rank: the stages that it calls, whether all slots are written, its choice."""
    calls: list[str] = []
    choices: list[torch.Tensor] = []

    def note(stage: str, args: tuple[object, ...], result: object) -> None:
        calls.append(stage)
        if stage == "attend" and isinstance(args[2], torch.Tensor):
            choices.append(args[2])

    measured = measured_layer(comm, MODELS["tiny"], rows, torch.device("cpu"), observed(TorchKernels, note))
    measured.run(0)
    measured.run(1)
    slots = [pool.view(-1, pool.shape[-1])[: rows * comm.size] for pool in (measured.cache.kv, measured.cache.index)]
    return calls, [bool(rows_of.any(dim=1).all()) for rows_of in slots], choices[0]


def test_it_calls_the_stages_that_are_proven_to_fit_but_for_the_choice_of_keys() -> None:
    stages = [step.stage for step in layer_steps(PLACEMENT)]
    once, each = stages[:2], [stage for stage in stages[2:] if stage != "select_topk"]
    for calls, is_written, _ in run_ranks(2, partial(timed_calls, rows=6)):
        assert calls == [*once, *each, *each]
        assert is_written == [True, True]


def test_each_row_is_given_the_first_keys_that_it_sees() -> None:
    ((_, _, choice),) = run_ranks(1, partial(timed_calls, rows=3))
    assert [[key for key in row if key >= 0] for row in choice.tolist()] == [[0], [0, 1], [0, 1, 2]]
